#include "tests/tools/gpu-verify/fake_device.h"

#include <dirent.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <utility>

namespace geminid::gpu_verify {
namespace {

constexpr int kMost = 4096;  // processes and allocations in one test

struct Process {
  std::atomic<int> pid;
  std::atomic<bool> has_context;
};
struct Memory {
  std::atomic<uint64_t> bytes;
  std::atomic<int> owner;
  std::atomic<int> epoch;
};
struct Shared {
  Faults faults;
  std::atomic<int> processes;
  std::atomic<int> memories;
  std::atomic<int> epoch;  // the number of times that the device was shut down
  Process process[kMost];
  Memory memory[kMost];
};

Shared* shared = nullptr;
int own_index = -1;

// Whether the process runs and is not a zombie.
bool Lives(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  const size_t name_end = line.rfind(')');
  return name_end != std::string::npos && line[name_end + 2] != 'Z' && line[name_end + 2] != 'X';
}

std::string Prefix() {
  return "/memfd:fake-gpu-" + std::to_string(reinterpret_cast<uintptr_t>(shared)) + "-";
}

// The number of the memory to which a link in /proc/PID/fd points, or -1.
int NumberOf(const std::string& link_path) {
  char target[256];
  const ssize_t length = readlink(link_path.c_str(), target, sizeof(target) - 1);
  if (length <= 0) return -1;
  target[length] = '\0';
  const std::string prefix = Prefix();
  if (std::strncmp(target, prefix.c_str(), prefix.size()) != 0) return -1;
  return std::atoi(target + prefix.size());
}

void AddNumbersOf(int pid, std::set<int>* numbers) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  DIR* entries = opendir(folder.c_str());
  if (entries == nullptr) return;
  while (const dirent* entry = readdir(entries)) {
    const int number = NumberOf(folder + "/" + entry->d_name);
    if (number >= 0) numbers->insert(number);
  }
  closedir(entries);
}

}  // namespace

void FakeDevice::Reset(const Faults& faults) {
  if (shared != nullptr) munmap(shared, sizeof(Shared));
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  shared = static_cast<Shared*>(memory);
  shared->faults = faults;
  own_index = -1;
}

const Faults& FakeDevice::faults() { return shared->faults; }

bool FakeDevice::Enter() {
  if (shared->faults.init_fails) return false;
  if (own_index >= 0) return true;
  bool alone = true;
  for (int i = 0; i < shared->processes; ++i) alone &= !Lives(shared->process[i].pid);
  if (alone) ++shared->epoch;
  own_index = shared->processes++;
  shared->process[own_index].pid = getpid();
  if (shared->faults.init_takes_memory) shared->process[own_index].has_context = true;
  return true;
}

void FakeDevice::AddContext() { shared->process[own_index].has_context = true; }

bool FakeDevice::HasContext() { return own_index >= 0 && shared->process[own_index].has_context; }

int FakeDevice::Allocate(uint64_t bytes) {
  const int number = shared->memories++;
  const std::string name = Prefix().substr(std::strlen("/memfd:")) + std::to_string(number);
  const int fd = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (number >= kMost || fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) std::abort();
  shared->memory[number].bytes = bytes;
  shared->memory[number].owner = getpid();
  shared->memory[number].epoch = shared->epoch.load();
  if (shared->faults.old_contents) {
    void* data = mmap(nullptr, bytes, PROT_WRITE, MAP_SHARED, fd, 0);
    std::memset(data, 0xEE, bytes);
    munmap(data, bytes);
  }
  return fd;
}

bool FakeDevice::IsAlive(int fd) {
  const int number = NumberOf("/proc/self/fd/" + std::to_string(fd));
  if (number < 0) return false;
  const Memory& memory = shared->memory[number];
  if (shared->faults.memory_dies_with_exporter && !Lives(memory.owner)) return false;
  return !shared->faults.memory_dies_with_last_process || memory.epoch == shared->epoch;
}

void FakeDevice::CopyBeyondDeath(void* to, const void* from, uint64_t bytes) {
  constexpr int kRounds = 2000;  // of a millisecond: longer than a slow end of its process
  static bool started = false;
  if (std::exchange(started, true) || fork() != 0) return;
  for (int i = 0; i < kRounds; ++i) {
    std::memcpy(to, from, bytes);
    const timespec millisecond{0, 1'000'000};
    nanosleep(&millisecond, nullptr);
  }
  _exit(0);
}

uint64_t FakeDevice::UsedBytes() {
  std::set<int> numbers;
  DIR* processes = opendir("/proc");
  while (const dirent* entry = readdir(processes)) {
    const int pid = std::atoi(entry->d_name);
    if (pid > 0) AddNumbersOf(pid, &numbers);
  }
  closedir(processes);
  uint64_t used = 0;
  for (const int number : numbers) {
    const Memory& memory = shared->memory[number];
    if (!shared->faults.orphans_not_counted || Lives(memory.owner)) used += memory.bytes;
  }
  const uint64_t context_bytes = shared->faults.context_is_huge     ? kFakeDeviceBytes / 4
                                 : shared->faults.init_takes_memory ? 8 * kFakeContextBytes
                                                                    : kFakeContextBytes;
  for (int i = 0; i < shared->processes; ++i) {
    if (shared->process[i].has_context && Lives(shared->process[i].pid)) used += context_bytes;
  }
  return used;
}

}  // namespace geminid::gpu_verify
