"""The system calls of a sandbox, as seccomp filters: one for keepers, and a narrower one for programs.

Allow-lists: what is not named fails as if the kernel did not have it. Absent for programs on purpose: new processes,
sockets but for a pair, mounts, namespaces, tracing, other processes' memory and signals to them, keys, shared memory
segments, io_uring, bpf; and what takes from a quota that sandboxes or the host share: timers, locks on files, larger
pipes, locked memory. Threads are allowed: `clone` with CLONE_THREAD. A keeper may also fork, wait, kill, and mount
its /tmp.
"""

from __future__ import annotations

import errno
import fcntl
import socket
import tempfile
from collections.abc import Sequence
from functools import lru_cache

CLONE_THREAD = 0x10000
ALLOWED = """
    read write readv writev pread64 pwrite64 lseek close close_range dup dup2 dup3 pipe pipe2
    open openat access faccessat faccessat2 stat lstat fstat newfstatat statx statfs fstatfs readlink readlinkat
    getdents getdents64 getcwd chdir fchdir mkdir mkdirat rmdir unlink unlinkat rename renameat renameat2
    symlink symlinkat link linkat truncate ftruncate fsync fdatasync chmod fchmod fchmodat utimensat umask
    fadvise64 fallocate copy_file_range sendfile
    mmap munmap mremap mprotect madvise brk msync membarrier
    futex futex_waitv set_robust_list get_robust_list rseq set_tid_address gettid getpid getppid getpgrp getpgid
    getsid getuid geteuid getgid getegid getresuid getresgid getgroups setgroups setresuid setresgid setsid
    exit exit_group wait4 waitid restart_syscall arch_prctl prctl getrlimit setrlimit getrusage
    rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack pause
    setitimer getitimer alarm times sysinfo uname
    clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time getrandom sched_yield
    sched_getaffinity sched_getparam sched_getscheduler getpriority
    poll ppoll select pselect6 epoll_create1 epoll_ctl epoll_wait epoll_pwait eventfd2 signalfd4
    sendto recvfrom sendmsg recvmsg shutdown getsockname getpeername getsockopt
"""

COMMANDS = [
    fcntl.F_DUPFD, fcntl.F_DUPFD_CLOEXEC, fcntl.F_GETFD, fcntl.F_SETFD, fcntl.F_GETFL, fcntl.F_SETFL,
]  # fmt: skip
"""Commands of `fcntl` that are allowed: no locks, no leases, no larger pipes, no owner who is signalled."""
REQUESTS = [0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451]
"""Requests of `ioctl` that Python makes of a file (TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX)."""
OF_KEEPERS = "clone fork vfork execve kill wait4 mount capset seccomp memfd_create prlimit64 fcntl ioctl pidfd_open"


@lru_cache
def of_programs() -> bytes:
    """Returns the filter of a process that runs a program, compiled for this machine.

    Raises:
        OSError: libseccomp is missing.
    """
    import pyseccomp as s

    rules = [
        ("clone", s.Arg(0, s.MASKED_EQ, CLONE_THREAD, CLONE_THREAD)),
        ("prlimit64", s.Arg(0, s.EQ, 0)),
        ("socketpair", s.Arg(0, s.EQ, socket.AF_UNIX)),
        *(("fcntl", s.Arg(1, s.EQ, command)) for command in COMMANDS),
        *(("ioctl", s.Arg(1, s.EQ, request)) for request in REQUESTS),
    ]
    return _compiled(ALLOWED.split(), rules)


@lru_cache
def of_keepers() -> bytes:
    """Returns the filter of a whole sandbox, in which programs get their own.

    Raises:
        OSError: libseccomp is missing.
    """
    return _compiled(f"{ALLOWED} {OF_KEEPERS} socketpair".split(), [])


def _compiled(names: Sequence[str], rules: Sequence[tuple]) -> bytes:
    import pyseccomp

    made = pyseccomp.SyscallFilter(pyseccomp.ERRNO(errno.ENOSYS))
    for name, *arguments in [*((name,) for name in names), *rules]:
        try:
            made.add_rule(pyseccomp.ALLOW, name, *arguments)
        except (OSError, RuntimeError, ValueError):  # no such call on this architecture
            continue
    with tempfile.TemporaryFile() as file:
        made.export_bpf(file)
        file.seek(0)
        return file.read()
