"""Limits of GPUs: they fit one another, NVIDIA's headline figures, and the device that answers."""

from dataclasses import fields
from types import SimpleNamespace

import pytest

from sparsekern.study import gpus
from sparsekern.study.gpus import GPUS, Gpu, device_name, of_device

A100 = dict(  # as CUDA describes the 80 GB board
    name=b"NVIDIA A100-SXM4-80GB",
    compute_capability=(8, 0),
    MULTIPROCESSOR_COUNT=108,
    CLOCK_RATE=1410_000,
    MEMORY_CLOCK_RATE=1593_000,
    GLOBAL_MEMORY_BUS_WIDTH=5120,
    L2_CACHE_SIZE=40 * 2**20,
    MAX_SHARED_MEMORY_PER_MULTIPROCESSOR=164 * 2**10,
    MAX_SHARED_MEMORY_PER_BLOCK_OPTIN=163 * 2**10,
    RESERVED_SHARED_MEMORY_PER_BLOCK=2**10,
    MAX_THREADS_PER_MULTIPROCESSOR=2048,
    MAX_BLOCKS_PER_MULTIPROCESSOR=32,
    MAX_REGISTERS_PER_MULTIPROCESSOR=65536,
)


def device(**properties):
    return SimpleNamespace(**{**A100, **properties})


# V100 data sheet: 15.7 TFLOP/s; A100 data sheet: 19.5; H200 data sheet: 67
@pytest.mark.parametrize("key, tflops", [("v100", 15.7), ("a100", 19.5), ("h200", 67)])
def test_multiply_adds_come_to_the_flops_of_the_data_sheet(key, tflops):
    assert 2 * GPUS[key].fp32_per_second / 1e12 == pytest.approx(tflops, rel=0.005)


@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS)
def test_the_shared_memory_of_a_block_and_what_the_system_takes_fill_an_sm(gpu):
    assert gpu.shared_per_block + gpu.shared_reserved == gpu.shared_per_sm
    assert gpu.shared_per_sm % gpu.shared_unit == 0


@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS)
def test_memory_is_faster_the_nearer_it_is(gpu):
    assert gpu.hbm_bytes_per_second < gpu.l2_bytes_per_second < gpu.l1_bytes_per_second


def test_the_l1_of_an_h200_gives_a_float_to_a_quarter_of_its_multiply_adds():
    h200 = GPUS["h200"]
    assert h200.l1_bytes_per_second / 4 / h200.fp32_per_second == 1 / 4


@pytest.mark.parametrize("name", ["NVIDIA H200", b"NVIDIA H200"])
def test_the_name_of_a_device_is_text_whichever_way_numba_has_it(name):
    assert device_name(device(name=name)) == "NVIDIA H200"


def test_a_device_of_the_table_is_found_by_its_name():
    assert of_device(device(name="NVIDIA A100-SXM4-40GB")) is GPUS["a100"]
    assert (
        of_device(device(name="NVIDIA H200", MULTIPROCESSOR_COUNT=132, CLOCK_RATE=1980_000)) is GPUS["h200"]
    )


def test_a_board_with_another_name_is_told_from_its_properties():
    gpu = of_device(device())
    assert gpu.name == "NVIDIA A100-SXM4-80GB"
    assert gpu.hbm_bytes_per_second == pytest.approx(2039e9, rel=1e-3)  # A100 80 GB data sheet
    same = {f.name for f in fields(Gpu)} - {"name", "hbm_bytes_per_second", "l2_bytes_per_second"}
    assert {name: getattr(gpu, name) for name in same} == {name: getattr(GPUS["a100"], name) for name in same}


@pytest.mark.parametrize("changed", [{"MULTIPROCESSOR_COUNT": 14}, {"CLOCK_RATE": 1200_000}], ids=str)
def test_a_slice_of_a_gpu_or_a_slower_board_is_not_taken_for_the_whole(changed):
    gpu = of_device(device(name="NVIDIA A100-SXM4-40GB", **changed))
    assert gpu not in GPUS.values()
    assert (gpu.sms, gpu.clock_hz) != (GPUS["a100"].sms, GPUS["a100"].clock_hz)


def test_a_gpu_before_volta_is_refused():
    with pytest.raises(ValueError, match=r"compute capability \(6, 1\); it must be \(7, 0\) or later"):
        of_device(device(compute_capability=(6, 1)))


@pytest.mark.gpu
def test_the_table_agrees_with_the_properties_of_the_gpu_that_answers(monkeypatch):
    listed = Gpu.current()
    if listed not in GPUS.values():
        pytest.skip(f"{listed.name} is not in the table")
    monkeypatch.setattr(gpus, "GPUS", {})
    told = Gpu.current()
    published = {"name", "l2_bytes_per_second", "launch_us", "hbm_bytes_per_second"}
    same = {f.name for f in fields(Gpu)} - published
    assert {n: getattr(told, n) for n in same} == {n: getattr(listed, n) for n in same}
    assert told.hbm_bytes_per_second == pytest.approx(listed.hbm_bytes_per_second, rel=0.03)
