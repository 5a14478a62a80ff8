"""Random programs race on the emulator where, by the definition, they do."""

import numpy as np
from numba import cuda, int32

from sparsekern import EmulatorError
from sparsekern.machine.emulator import emulate


def has_race(steps):
    """By the definition, for `steps` of accesses {lane: (word, whether it writes)}, then masks that meet."""
    before = {lane: set() for lane in range(4)}  # for each lane the accesses that happened before its next
    seen = []
    for accesses, masks in steps:
        for lane, (word, writes) in accesses.items():
            for number, (other, other_writes) in enumerate(seen):
                if other == word and (writes or other_writes) and number not in before[lane]:
                    return True
            before[lane].add(len(seen))
            seen.append((word, writes))
        for mask in masks:
            team = [lane for lane in range(4) if mask >> lane & 1]
            together = set().union(*(before[lane] for lane in team))
            before.update((lane, set(together)) for lane in team)
    return False


def test_random_programs_race_where_the_definition_says_so():
    outcomes = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        steps = []
        for _ in range(rng.integers(2, 7)):
            lanes_ = rng.permutation(4)[: rng.integers(0, 3)].tolist()
            accesses = {lane: (int(rng.integers(3)), bool(rng.integers(2))) for lane in lanes_}
            teams = rng.integers(0, 3, 4).tolist()  # lanes of team 0 stay out
            masks = [sum(1 << lane for lane in range(4) if teams[lane] == team) for team in (1, 2)]
            steps.append((accesses, masks))

        def kernel(steps):
            lane = cuda.laneid
            shared = cuda.shared.array(3, int32)
            if lane == 0:
                shared[0], shared[1], shared[2] = 0, 0, 0
            cuda.syncthreads()
            for accesses, masks in steps:
                if lane in accesses:
                    word, writes = accesses[lane]
                    if writes:
                        shared[word] = lane
                    else:
                        shared[word]
                for mask in masks:
                    if mask >> lane & 1:
                        cuda.syncwarp(mask)

        try:
            emulate(kernel, (1,), (4,), [steps])
            raced = False
        except EmulatorError as error:
            raced = error.kind == "race"
        assert raced == has_race(steps), seed
        outcomes.append(raced)
    assert 50 < sum(outcomes) < 150
