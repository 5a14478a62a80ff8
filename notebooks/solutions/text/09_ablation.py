# ---
# jupyter:
#   jupytext:
#     formats: ipynb,text//py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Ablation: solutions

# %%
from sparsekern.study.notebooks import exercises

exercises("09_ablation", globals())

# %% [markdown]
# ## Exercise 1: what has to be measured
#
# `without` moves other toggles along, so it leaves out the coalitions between. Go over all subsets instead:
# turn each off with nothing else moved, keep what is legal, and drop what has a time already.


# %%
def missing(variant, toggles, recorded):
    plainest = {f.name: f.default for f in fields(variant)}  # noqa: F821
    found = set()
    for size in range(len(toggles) + 1):
        for off in combinations(toggles, size):  # noqa: F821
            try:
                found.add(replace(variant, **{name: plainest[name] for name in off}))  # noqa: F821
            except sk.VariantError:  # noqa: F821
                continue
    return found - recorded


answer_1 = missing
print(check_1(answer_1))  # noqa: F821
assert check_1(answer_1).startswith("solved")  # noqa: F821

# %% [markdown]
# ## Exercise 2: five toggles
#
# There are few enough to try all. What comes out is `in_flight` with the three that it stands on, and one
# more: `vector`. Taking the five with the largest average gain is not even legal, for a toggle is worth
# nothing without what it is built on.

# %%
legal = [on for on in game if len(on) <= 5]  # noqa: F821
answer_2 = min(legal, key=lambda on: bounds("spmm", layer, N, game[on]).predicted_us)  # noqa: F821
print(sorted(answer_2), check_2(answer_2))  # noqa: F821
greedy = check_2({"in_flight", "split", "prefetch", "vector", "sparse_vector"})  # noqa: F821
print(greedy)
assert answer_2 == {"stage", "prescale", "uniform_trip", "in_flight", "vector"} and "needs" in greedy
assert check_2(answer_2).startswith("solved")  # noqa: F821
