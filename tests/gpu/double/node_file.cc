#include "tests/gpu/double/node_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>

namespace geminid::gpu_double {
namespace {

constexpr uint64_t kDefaultMemoryBytes = uint64_t{1} << 30;
constexpr int kDriverVersion = 12080;

std::string FilePrefix(uint64_t node_id, int device) {
  return "/memfd:geminid-gpu-" + std::to_string(node_id) + "-" + std::to_string(device) + "-";
}

NodeFile* MapNode() {
  const char* const path = std::getenv(kNodeFileVariable);
  if (path == nullptr || *path == '\0') {
    auto* node = new NodeFile();
    Initialise(node, 1);
    return node;
  }
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  void* const data =
      fd < 0 ? MAP_FAILED
             : mmap(nullptr, sizeof(NodeFile), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  auto* const node = data == MAP_FAILED ? nullptr : static_cast<NodeFile*>(data);
  if (node == nullptr || node->magic != kNodeMagic) {
    std::fprintf(stderr, "driver double: %s=%s is no file of a node\n", kNodeFileVariable, path);
    std::abort();
  }
  return node;
}

// Excludes threads; processes exclude each other by a lock of the file, which ends with a process.
std::mutex& LockOfThreads() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

int LockFile() {
  static const int fd = [] {
    const char* const path = std::getenv(kNodeFileVariable);
    return path == nullptr ? -1 : open(path, O_RDWR | O_CLOEXEC);
  }();
  return fd;
}

void AddBytesOf(const std::string& folder, const std::string& prefix, std::set<ino_t>* seen,
                uint64_t* bytes) {
  DIR* const entries = opendir(folder.c_str());
  if (entries == nullptr) return;
  while (const dirent* entry = readdir(entries)) {
    const std::string path = folder + "/" + entry->d_name;
    char target[256];
    const ssize_t length = readlink(path.c_str(), target, sizeof(target) - 1);
    if (length <= 0) continue;
    target[length] = '\0';
    if (std::strncmp(target, prefix.c_str(), prefix.size()) != 0) continue;
    struct stat status = {};
    if (stat(path.c_str(), &status) == 0 && seen->insert(status.st_ino).second) {
      *bytes += static_cast<uint64_t>(status.st_size);
    }
  }
  closedir(entries);
}

}  // namespace

void Initialise(NodeFile* node, int devices) {
  static std::atomic<uint64_t> nodes = 0;
  constexpr uint64_t kNodesOfAProcess = 1 << 20;
  node->magic = kNodeMagic;
  node->id = static_cast<uint64_t>(getpid()) * kNodesOfAProcess + nodes++;
  node->devices = devices;
  node->driver_version = kDriverVersion;
  node->attention_workspace_factor = 1;
  for (DeviceState& device : node->device) {
    device.memory_bytes = kDefaultMemoryBytes;
    device.part_of = kWholeGpu;
  }
}

NodeFile& ThisNode() {
  static NodeFile* const node = MapNode();
  return *node;
}

NodeLock::NodeLock() {
  LockOfThreads().lock();
  if (LockFile() >= 0) flock(LockFile(), LOCK_EX);
}

NodeLock::~NodeLock() {
  if (LockFile() >= 0) flock(LockFile(), LOCK_UN);
  LockOfThreads().unlock();
}

int DeviceCount(const NodeFile& node) { return node.devices + node.instances; }

bool IsInstance(const NodeFile& node, int device) {
  return node.device[device].part_of != kWholeGpu;
}

int GpuOf(const NodeFile& node, int device) {
  return IsInstance(node, device) ? node.device[device].part_of.load() : device;
}

std::vector<int> InstancesOf(const NodeFile& node, int gpu) {
  std::vector<int> instances;
  for (int device = node.devices; device < DeviceCount(node); ++device) {
    if (node.device[device].part_of == gpu) instances.push_back(device);
  }
  return instances;
}

std::string UuidOf(int gpu) {
  char text[64];
  std::snprintf(text, sizeof(text), "GPU-6d0b%04x-0000-4000-8000-00000000000%d", gpu, gpu);
  return text;
}

std::string InstanceUuidOf(int instance) {
  char text[64];
  std::snprintf(text, sizeof(text), "MIG-6d0c%04x-0000-5000-8000-00000000000%d", instance,
                instance);
  return text;
}

std::string UuidOf(const NodeFile& node, int device) {
  return IsInstance(node, device) ? InstanceUuidOf(device - node.devices) : UuidOf(device);
}

std::string NameOf(const NodeFile& node, int device) {
  return IsInstance(node, device) ? std::string(kDeviceName) + " MIG 1g" : kDeviceName;
}

std::string PciBusIdOf(int gpu) {
  char text[32];
  std::snprintf(text, sizeof(text), "00000000:%02X:00.0", 0x3B + gpu);
  return text;
}

uint64_t UsedBytes(const NodeFile& node, int device) {
  const std::vector<int> instances = InstancesOf(node, device);
  if (!instances.empty()) {
    uint64_t bytes = 0;
    for (const int instance : instances) bytes += UsedBytes(node, instance);
    return bytes;
  }
  const std::string prefix = FilePrefix(node.id, device);
  std::set<ino_t> seen;
  uint64_t bytes = 0;
  DIR* const processes = opendir("/proc");
  while (const dirent* entry = readdir(processes)) {
    if (std::atoi(entry->d_name) <= 0) continue;
    AddBytesOf(std::string("/proc/") + entry->d_name + "/fd", prefix, &seen, &bytes);
  }
  closedir(processes);
  return bytes;
}

}  // namespace geminid::gpu_double
