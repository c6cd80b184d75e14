#include "client/device/cuda/host_registry.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/os/thread.h"

namespace geminid::device {
namespace {

uintptr_t Address(const void* place) { return reinterpret_cast<uintptr_t>(place); }

}  // namespace

HostRegistry::HostRegistry(std::shared_ptr<CudaContext> context, uint64_t piece_bytes,
                           HostRegistrationObserver observer)
    : context_(std::move(context)), piece_bytes_(piece_bytes), observer_(std::move(observer)) {}

HostRegistry::~HostRegistry() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  const CudaContext::Scope scope(*context_);
  for (const auto& [address, piece] : pieces_) {
    if (piece.stage != Stage::kRegistered) continue;
    context_->api().mem_host_unregister(reinterpret_cast<void*>(address));
  }
}

absl::Status HostRegistry::Add(std::span<std::byte> memory) {
  const uintptr_t begin = Address(memory.data());
  const std::lock_guard lock(mutex_);
  const auto next = pieces_.lower_bound(begin);
  const bool overlaps_next = next != pieces_.end() && next->first < begin + memory.size();
  const bool overlaps_previous =
      next != pieces_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > begin;
  if (memory.empty() || overlaps_next || overlaps_previous) {
    return absl::InvalidArgumentError(absl::StrCat(
        memory.size(),
        " bytes of host memory cannot be registered: the memory is empty, or registered already"));
  }
  for (uint64_t at = 0; at < memory.size(); at += piece_bytes_) {
    pieces_[begin + at].bytes = std::min(piece_bytes_, memory.size() - at);
    ++totals_.given;
  }
  totals_.given_bytes += memory.size();
  Tell();
  if (!thread_.joinable()) {
    thread_ = std::thread([this] {
      PrepareThread("geminid-pin");
      Run();
    });
  }
  changed_.notify_all();
  return absl::OkStatus();
}

void HostRegistry::Remove(std::span<std::byte> memory) {
  const uintptr_t begin = Address(memory.data());
  std::unique_lock lock(mutex_);
  for (auto piece = pieces_.lower_bound(begin);
       piece != pieces_.end() && piece->first < begin + memory.size();) {
    changed_.wait(lock, [&] { return piece->second.stage != Stage::kAtWork; });
    if (piece->second.stage == Stage::kRegistered) {
      const CudaContext::Scope scope(*context_);
      context_->api().mem_host_unregister(reinterpret_cast<void*>(piece->first));
    }
    Forget(piece->second);
    piece = pieces_.erase(piece);
  }
  Tell();
}

void HostRegistry::Forget(const RegisteredPart& piece) {
  totals_.given_bytes -= piece.bytes;
  --totals_.given;
  if (piece.stage == Stage::kRegistered) {
    totals_.registered_bytes -= piece.bytes;
    --totals_.registered;
  } else if (piece.stage == Stage::kRefused) {
    totals_.refused_bytes -= piece.bytes;
    --totals_.refused;
  }
}

HostRegistry::Stretch HostRegistry::Find(const void* place, uint64_t bytes) {
  const uintptr_t at = Address(place);
  const std::lock_guard lock(mutex_);
  const auto next = pieces_.upper_bound(at);
  const uint64_t to_next =
      next == pieces_.end() ? bytes : std::min<uint64_t>(bytes, next->first - at);
  if (next == pieces_.begin()) return {to_next, false};
  const auto found = std::prev(next);
  const uint64_t end = found->first + found->second.bytes;
  if (end <= at) return {to_next, false};
  if (found->second.stage == Stage::kWaiting) {
    found->second.urgency = ++urgency_;
  }
  return {std::min<uint64_t>(bytes, end - at), found->second.stage == Stage::kRegistered};
}

HostRegistrationCounts HostRegistry::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

absl::Status HostRegistry::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

HostRegistry::Pieces::iterator HostRegistry::Next() {
  auto best = pieces_.end();
  for (auto piece = pieces_.begin(); piece != pieces_.end(); ++piece) {
    if (piece->second.stage != Stage::kWaiting) continue;
    if (best == pieces_.end() || piece->second.urgency > best->second.urgency) best = piece;
  }
  return best;
}

void HostRegistry::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || Next() != pieces_.end(); });
    if (stopping_) return;
    const auto piece = Next();
    piece->second.stage = Stage::kAtWork;
    const uint64_t bytes = piece->second.bytes;
    lock.unlock();
    const CUresult result = [&] {
      const CudaContext::Scope scope(*context_);
      return context_->api().mem_host_register(
          reinterpret_cast<void*>(piece->first), bytes,
          CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    }();
    const absl::Status status = context_->Check(result, "cuMemHostRegister");
    lock.lock();
    piece->second.stage = status.ok() ? Stage::kRegistered : Stage::kRefused;
    (status.ok() ? totals_.registered_bytes : totals_.refused_bytes) += bytes;
    ++(status.ok() ? totals_.registered : totals_.refused);
    status_.Update(status);
    Tell();
    changed_.notify_all();
  }
}

}  // namespace geminid::device
