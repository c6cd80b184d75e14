#include "tests/gpu/double/process.h"

#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>

#include "tests/gpu/double/faults.h"
#include "tests/gpu/double/node_file.h"

namespace geminid::gpu_double {
namespace {

std::atomic<pid_t> initialised_in = 0;

std::mutex& ContextsLock() {
  static auto* const lock = new std::mutex;
  return *lock;
}

// The device that an item of CUDA_VISIBLE_DEVICES names, or -1. Numbers count GPUs.
int DeviceNamed(const NodeFile& node, const std::string& item) {
  int index = -1;
  const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), index);
  if (error == std::errc() && end == item.data() + item.size()) {
    return index >= 0 && index < node.devices ? index : -1;
  }
  for (int i = 0; i < DeviceCount(node); ++i) {
    const bool has_prefix = item.starts_with(IsInstance(node, i) ? "MIG-" : "GPU-");
    if (has_prefix && UuidOf(node, i).starts_with(item)) return i;
  }
  return -1;
}

std::vector<int> NamedDevices(const NodeFile& node) {
  std::vector<int> named;
  const char* const list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr) {
    for (int i = 0; i < node.devices; ++i) named.push_back(i);
    return named;
  }
  std::istringstream items(list);
  for (std::string item; std::getline(items, item, ',');) {
    const int device = DeviceNamed(node, item);
    if (device < 0) break;  // devices after an invalid one are invisible
    named.push_back(device);
  }
  return named;
}

// A divided GPU stands for its first instance; a process that sees an instance sees only that.
std::vector<int> FindVisibleDevices() {
  const NodeFile& node = ThisNode();
  std::vector<int> visible;
  for (const int device : NamedDevices(node)) {
    const std::vector<int> instances = InstancesOf(node, device);
    const int seen = instances.empty() ? device : instances.front();
    if (IsInstance(node, seen)) return {seen};
    visible.push_back(seen);
  }
  return visible;
}

}  // namespace

CUresult Gate(int function, Needs needs) {
  const auto fault = static_cast<CUresult>(CountCall(function));
  if (fault != CUDA_SUCCESS) return fault;
  if (needs == Needs::kNothing) return CUDA_SUCCESS;
  if (initialised_in != getpid()) return CUDA_ERROR_NOT_INITIALIZED;
  if (InHostFunction()) return CUDA_ERROR_NOT_PERMITTED;
  if (needs == Needs::kInit) return CUDA_SUCCESS;
  Context* const context = CurrentContext();
  return context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : context->error();
}

CUresult InitialiseProcess() {
  if (initialised_in == getpid()) return CUDA_SUCCESS;
  if (initialised_in != 0) return CUDA_ERROR_NOT_INITIALIZED;  // a forked child
  if (VisibleDevices().empty()) return CUDA_ERROR_NO_DEVICE;
  std::fprintf(stderr, "driver double: this is not a GPU; %zu device(s), the first of %lu MiB\n",
               VisibleDevices().size(),
               static_cast<unsigned long>(
                   ThisNode().device[VisibleDevices().front()].memory_bytes.load() >> 20));
  initialised_in = getpid();
  return CUDA_SUCCESS;
}

const std::vector<int>& VisibleDevices() {
  static const auto* const devices = new std::vector<int>(FindVisibleDevices());
  return *devices;
}

bool IsDevice(CUdevice device) {
  return device >= 0 && static_cast<size_t>(device) < VisibleDevices().size();
}

Context* PrimaryContext(CUdevice device) {
  static Context* contexts[kMostDevices] = {};
  const std::lock_guard lock(ContextsLock());
  Context*& context = contexts[device];
  if (context == nullptr) context = new Context(VisibleDevices()[static_cast<size_t>(device)]);
  return context;
}

Context* ContextOf(CUcontext handle) {
  for (CUdevice device = 0; IsDevice(device); ++device) {
    Context* const context = PrimaryContext(device);
    if (reinterpret_cast<CUcontext>(context) == handle && context->retained > 0) return context;
  }
  return nullptr;
}

std::vector<Context*>& ContextStack() {
  thread_local std::vector<Context*> stack;
  return stack;
}

Context* CurrentContext() { return ContextStack().empty() ? nullptr : ContextStack().back(); }

}  // namespace geminid::gpu_double
