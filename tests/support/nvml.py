"""A libnvidia-ml.so.1 with NVML's C ABI, compiled by a test: values are in a file, one a line.

Lines are NAME VALUE: `error` is the code that each call about a GPU answers with, `pid` a process
that uses `pid_used` bytes; `util` percent, `used`, `total` bytes, `power` mW. A GPU whose UUID
begins with MIG knows no use. The file with the ending .reads grows by a byte a read.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned gpu, memory; } utilization_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } process_t;
enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };
static char gpu, mig;

static long long value(const char *name) {
  char key[40];
  long long found, wanted = 0;
  FILE *file = fopen(getenv("FAKE_NVML"), "r");
  while (file && fscanf(file, "%39s %lld", key, &found) == 2)
    if (!strcmp(key, name)) wanted = found;
  if (file) fclose(file);
  return wanted;
}

int nvmlInitWithFlags(unsigned flags) { return OK; }
const char *nvmlErrorString(int code) { return "an error of the test"; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  *device = &gpu;
  return index ? NOT_FOUND : OK;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  *device = strncmp(uuid, "MIG", 3) ? &gpu : &mig;
  return OK;
}
int nvmlDeviceGetMemoryInfo(void *device, memory_t *memory) {
  char name[4096];
  snprintf(name, sizeof name, "%s.reads", getenv("FAKE_NVML"));
  FILE *file = fopen(name, "a");
  fputc('.', file);
  fclose(file);
  memory->total = value("total");
  memory->used = value("used");
  memory->free = memory->total - memory->used;
  return value("error");
}
int nvmlDeviceGetUtilizationRates(void *device, utilization_t *use) {
  use->gpu = value("util");
  return device == &mig ? NOT_SUPPORTED : value("error");
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *mw) {
  *mw = value("power");
  return device == &mig ? NOT_SUPPORTED : value("error");
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process_t *found) {
  if (!value("pid")) { *count = 0; return OK; }
  if (!found || !*count) { *count = 1; return TOO_SMALL; }
  *count = 1;
  memset(found, 0, sizeof *found);
  found->pid = value("pid");
  found->used = value("pid_used");
  return OK;
}
"""
GB = 1 << 30


class FakeNvml:
    """The library in a folder, and its values."""

    def __init__(self, folder: Path) -> None:
        """Compile the library; skip the test if this machine has no compiler."""
        if not shutil.which("cc"):
            pytest.skip("no cc: the fake libnvidia-ml cannot be compiled")
        self.file = folder / "nvml"
        (folder / "nvml.c").write_text(_SOURCE)
        command = ["cc", "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", folder / "nvml.c"]
        subprocess.run(command, check=True)
        self.env = {"LD_LIBRARY_PATH": str(folder), "FAKE_NVML": str(self.file)}
        self.set(total=24 * GB)

    def set(self, **values: int) -> None:
        """Write all values at once."""
        draft = self.file.with_suffix(".new")
        draft.write_text("".join(f"{name} {value}\n" for name, value in values.items()))
        draft.rename(self.file)
