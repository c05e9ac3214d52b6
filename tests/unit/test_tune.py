from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rocm_wheels import tune
from rocm_wheels.errors import ProfilerFailed, ProfilerMissing, UnknownArch
from rocm_wheels.tune import profile

# Columns and values as rocprofv3 (ROCm 6.3 to 7) and rocprof (5.x) write them.
TRACE_V3 = """\
"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id",\
"Start_Timestamp","End_Timestamp","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count",\
"Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"
"KERNEL_DISPATCH","Agent 2",1,0,70,1,33,"gemm<float, 4>(float const*, float*)",11,172352210005122,172352210105122,\
0,0,12,4,48,256,1,1,256,1,1
"KERNEL_DISPATCH","Agent 2",1,0,70,2,16,"fill",12,172352210205122,172352210215122,0,0,4,4,16,1,1,1,1,1,1
"KERNEL_DISPATCH","Agent 2",1,0,70,3,33,"gemm<float, 4>(float const*, float*)",13,172352210305122,172352210405122,\
0,0,12,4,48,256,1,1,256,1,1
"""
STATS_V3 = """\
"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"
"JacobiIterationKernel(int, double, double const*)",1000,5.37449866e+08,537449.866000,43.30,520003,560324,6504.934470
"NormKernel1",1001,411643855,411232.622378,33.16,401922,418563,2651.539233
"""
HIP_STATS_V3 = """\
"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"
"hipMemcpy",2,583182462,291591231.0,99.78,1,2,3
"""
TRACE_V1 = """\
"Index","KernelName","gpu-id","queue-id","queue-index","pid","tid","grd","wgr","lds","scr","arch_vgpr","accum_vgpr",\
"sgpr","wave_size","sig","obj","DispatchNs","BeginNs","EndNs","CompleteNs","DurationNs"
0,"bodyForce(Body*, float, int) [clone .kd]",0,0,0,3670615,3670615,65536,256,0,0,20,4,16,64,"0x0","0x7f7b27c04500",\
1591372809346673,1591372809872935,1591372836189584,1591372836215944,26316649
1,"bodyForce(Body*, float, int) [clone .kd]",0,0,2,3670615,3670615,65536,256,0,0,20,4,16,64,"0x0","0x7f7b27c04500",\
1591372836774261,1591372837003700,1591372863143000,1591372863163000,26139300
"""
STATS_V1 = """\
"Name","Calls","TotalDurationNs","AverageNs","Percentage"
"bodyForce(Body*, float, int) [clone .kd]",10,261124944,26112494,100.0
"""


def read(tmp_path: Path, **files: str) -> tune.Profile:
    for name, text in files.items():
        path = tmp_path / f"{name.replace('__', '.')}.csv"
        path.write_text(text, "utf-8")
    return tune.read_profile(tmp_path)


def test_a_trace_of_rocprofv3_is_summed_by_kernel(tmp_path: Path) -> None:
    found = read(tmp_path, host_1_kernel_trace=TRACE_V3)
    assert [(k.name, k.calls, k.total_ns) for k in found.kernels] == [
        ("gemm<float, 4>(float const*, float*)", 2, 200_000),
        ("fill", 1, 10_000),
    ]
    assert found.kernels[0].average_us == 100.0
    assert len(found.dispatches) == 3


def test_statistics_of_rocprofv3_are_read_beside_those_of_api_calls(tmp_path: Path) -> None:
    found = read(tmp_path, x_kernel_stats=STATS_V3, x_hip_api_stats=HIP_STATS_V3, x_domain_stats=HIP_STATS_V3)
    assert [(k.name, k.total_ns) for k in found.kernels] == [
        ("JacobiIterationKernel(int, double, double const*)", 537_449_866),
        ("NormKernel1", 411_643_855),
    ]


def test_results_of_rocprof_are_read(tmp_path: Path) -> None:
    found = read(tmp_path, results=TRACE_V1)
    assert [(k.name, k.calls, k.total_ns) for k in found.kernels] == [
        ("bodyForce(Body*, float, int)", 2, 26_316_649 + 26_139_300)
    ]


def test_statistics_of_rocprof_are_read_when_there_is_no_trace(tmp_path: Path) -> None:
    found = read(tmp_path, results__stats=STATS_V1, results__hip_stats=HIP_STATS_V3)
    assert [(k.name, k.calls) for k in found.kernels] == [("bodyForce(Body*, float, int)", 10)]


def test_a_trace_is_not_counted_again_by_its_statistics(tmp_path: Path) -> None:
    alone = read(tmp_path, results=TRACE_V1)
    assert read(tmp_path, results__stats=STATS_V1) == alone


def test_without_kernels_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(ProfilerFailed, match="no CSV"):
        read(tmp_path, x_hip_api_stats=HIP_STATS_V3)


def test_the_picture_needs_nothing_else_and_shows_every_kernel(tmp_path: Path) -> None:
    found = read(tmp_path, host_1_kernel_trace=TRACE_V3)
    page = tune.html(found, "train.py <1>")
    assert "http" not in page
    assert "<script" not in page
    assert "train.py &lt;1&gt;" in page
    assert "gemm&lt;float, 4&gt;" in page
    assert page.count('<rect class="bar" x=') == 3
    assert "95.2%" in page


def test_dispatches_that_share_a_pixel_are_drawn_once() -> None:
    many = tuple(("k", n, n + 1) for n in range(100_000))
    page = tune.html(tune.Profile((tune.Kernel("k", len(many), len(many)),), many), "x")
    assert page.count('<rect class="bar" x=') <= 1000


def test_the_newest_profiler_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    with pytest.raises(ProfilerMissing):
        tune.find_profiler("")
    for name in ("rocprof", "rocprofv3"):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n", "utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
        assert tune.find_profiler("").name == name


@pytest.mark.parametrize("name", ["rocprof", "rocprofv3"])
def test_a_profilers_output_is_read_after_it_ran(tmp_path: Path, name: str) -> None:
    """The profiler itself needs a GPU: a script stands for it that takes its options and writes its file."""
    option, file = ("-o", "$2") if name == "rocprof" else ("--output-directory", "$d/1_kernel_trace.csv")
    (tmp_path / "source.csv").write_text(TRACE_V1 if name == "rocprof" else TRACE_V3, "utf-8")
    tool = tmp_path / name
    tool.write_text(
        f'#!/bin/sh\nwhile [ "$1" != "{option}" ]; do shift; done\nd=$2\ncp {tmp_path}/source.csv "{file}"\nshift 2\n'
        '[ "$1" = -- ] && shift\nexec "$@"\n',
        "utf-8",
    )
    tool.chmod(0o755)
    (tmp_path / "train.py").write_text("import sys; sys.exit(int(sys.argv[1]))", "utf-8")
    assert tune.run_profiler(tool, [str(tmp_path / "train.py"), "0"], tmp_path / "out").kernels
    with pytest.raises(ProfilerFailed, match="ended with 3"):
        tune.run_profiler(tool, [str(tmp_path / "train.py"), "3"], tmp_path / "out")


def test_options_end_before_the_program_for_rocprofv3() -> None:
    words = profile.command(Path("/opt/rocm/bin/rocprofv3"), ["./a.out", "--stats"], Path("out"))
    assert words[-3:] == ["--", "./a.out", "--stats"]


# --- environment ------------------------------------------------------------------------------------------------------


def sourced(text: str, home: Path) -> dict[str, str]:
    """The variables that a shell has after it has sourced ``text``."""
    (home / "activate.sh").write_text(text, "utf-8")
    command = ["env", "-i", f"HOME={home}", "PATH=/usr/bin:/bin", "sh", "-euc", f". {home}/activate.sh && env"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def test_caches_are_made_per_version_and_gpu(tmp_path: Path) -> None:
    one = sourced(tune.activation_file("2.6.0+rocm5.7", "gfx1030"), tmp_path)
    two = sourced(tune.activation_file("2.6.0+rocm5.7", "gfx1100"), tmp_path)
    for name in ("MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR"):
        assert one[name] != two[name]
        assert "2.6.0+rocm5.7/gfx1030" in one[name]
        assert Path(one[name]).is_dir()


def test_visibility_is_set_when_it_is_asked_for(tmp_path: Path) -> None:
    assert "ROCR_VISIBLE_DEVICES" not in sourced(tune.activation_file("1", "gfx1030"), tmp_path)
    found = sourced(tune.activation_file("1", "gfx1030", devices=["0", "2"]), tmp_path)
    assert found["ROCR_VISIBLE_DEVICES"] == "0,2"
    assert "HIP_VISIBLE_DEVICES" not in found, "two variables would count twice"


def test_an_override_is_offered_within_a_family_only_and_never_set(tmp_path: Path) -> None:
    near = tune.activation_file("1", "gfx1032")
    assert "# export HSA_OVERRIDE_GFX_VERSION=10.3.0" in near
    assert "HSA_OVERRIDE_GFX_VERSION" not in sourced(near, tmp_path)
    assert "none is legitimate" in tune.activation_file("1", "gfx90a")


def test_folklore_is_said_to_be_so_and_never_set(tmp_path: Path) -> None:
    folklore = [variable.name for variable in tune.load_variables() if variable.kind == "folklore"]
    assert "HIP_MAX_THREADS_PER_BLOCK" in folklore
    text = tune.activation_file("1", "gfx1030")
    assert all(f"# {name} is not set" in text for name in folklore)
    assert not set(folklore) & set(sourced(text, tmp_path))


def test_every_variable_has_a_meaning_and_a_source() -> None:
    assert all(v.meaning and v.source.startswith("https://") for v in tune.load_variables())


def test_an_unknown_gpu_is_refused() -> None:
    with pytest.raises(UnknownArch):
        tune.activation_file("1", "gfx1234")
