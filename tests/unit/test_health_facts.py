"""What doctor judges from facts of the machine that a test cannot plant: mounts, room, settings of git, versions."""

from pathlib import Path

import pytest

from duckkb.review import machine_health
from duckkb.storage import clone_state

MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:26 / /home rw - nfs4 server:/home rw
31 30 0:27 / /home/here rw - xfs /dev/vdb rw
32 22 0:28 / /mnt/with\\040blank rw - fuse.sshfs far:/ rw
33 22 0:29 / /srv rw - ext4 /dev/vdc rw
34 22 0:30 / /srv rw shared:3 - 9p host rw
torn
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/etc", "ext4"),
        ("/home/kb", "nfs4"),
        ("/home/here/kb", "xfs"),
        ("/home/hereby", "nfs4"),
        ("/mnt/with blank/kb", "fuse.sshfs"),
        ("/srv/kb", "9p"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_and_latest_mount(path: str, kind: str) -> None:
    assert clone_state.file_system(Path(path), MOUNTS) == kind


def test_this_machine_has_a_file_system_or_does_not_tell() -> None:
    assert bool(clone_state.file_system(Path.cwd())) == clone_state.MOUNTS.exists()


@pytest.mark.parametrize(
    ("kind", "remote"), [("nfs", True), ("cifs", True), ("9p", True), ("fuse.x", True), ("fuseblk", False), ("", False)]
)
def test_a_base_on_a_file_system_of_several_machines_is_warned_of(tmp_path: Path, kind: str, remote: bool) -> None:
    found = list(machine_health.judge_file_system(tmp_path, kind))
    assert [verdict.status for verdict in found] == (["warning"] if remote else [])
    assert clone_state.is_remote(kind) is remote


def test_room_is_judged_without_naming_what_is_left() -> None:
    assert not [
        *machine_health.room(machine_health.LEAST_BYTES, None),
        *machine_health.room(10**12, machine_health.LEAST_INODES),
    ]
    low = list(machine_health.room(machine_health.LEAST_BYTES - 1, machine_health.LEAST_INODES - 1))
    assert [problem.status for problem in low] == ["warning", "warning"] and all(problem.remedy for problem in low)
    assert low == list(machine_health.room(5, 0)), "two looks at a disk that fills up say the same"


@pytest.mark.parametrize(
    ("settings", "eol", "platform", "folds", "remedy"),
    [
        ({"core.autocrlf": "true"}, "lf", "win32", False, None),
        ({"core.autocrlf": "true"}, "", "win32", False, "core.autocrlf false"),
        ({"core.autocrlf": "input"}, "", "linux", False, None),
        ({"core.eol": "crlf"}, "unspecified", "linux", False, "core.eol lf"),
        ({"core.ignorecase": "true"}, "lf", "darwin", True, None),
        ({"core.ignorecase": "true"}, "lf", "linux", False, "core.ignorecase false"),
        ({}, "lf", "darwin", True, "core.ignorecase true"),
        ({"core.precomposeunicode": "false"}, "lf", "darwin", False, "core.precomposeunicode true"),
        ({"core.precomposeunicode": "false"}, "lf", "linux", False, None),
    ],
)
def test_settings_of_git_that_change_files_or_names(
    settings: dict[str, str], eol: str, platform: str, folds: bool, remedy: str | None
) -> None:
    found = list(machine_health.risks(settings, eol, platform, folds_case=folds))
    assert [verdict.status for verdict in found] == ["warning"] * bool(remedy)
    assert not remedy or remedy in found[0].remedy


@pytest.mark.parametrize(
    ("version", "bounds", "fits"),
    [
        ("1.5.6", "<2,>=1.5.5", True),
        ("1.5.4", "<2,>=1.5.5", False),
        ("2.0.0", "<2,>=1.5.5", False),
        ("2", ">=2.0.0", True),
        ("0.3.0", "==0.3.0", True),
        ("0.3.0.post1", "==0.3.0", True),
        ("0.3.1", "==0.3.0", False),
        ("3.14", "<3.14,>=3.11", False),
        ("3.9", ">=3.11", False),
        ("1.0rc1", ">=1.0", True),
        ("5", "!=5", False),
        ("5", "~=4.2", True),
        ("5", "", True),
    ],
)
def test_versions_are_held_against_bounds(version: str, bounds: str, fits: bool) -> None:
    assert machine_health.is_within(version, bounds) is fits
