// Handles are names of objects. They are looked up and never dereferenced, so a freed or invented
// handle is an error and not a crash.
#ifndef GEMINID_CLIENT_C_API_HANDLES_H_
#define GEMINID_CLIENT_C_API_HANDLES_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace geminid::c_api {

// Never returns a number twice, for any kind of object. The numbers are below any object's address.
uint64_t NextName();

// Handle: the incomplete type in the C interface. Thread-safe.
template <typename Handle, typename Object>
class HandleTable {
 public:
  explicit HandleTable(const char* kind) : kind_(kind) {}

  Handle* Add(std::shared_ptr<Object> object) {
    Handle* const handle = reinterpret_cast<Handle*>(static_cast<uintptr_t>(NextName()));
    const std::lock_guard<std::mutex> lock(mutex_);
    objects_.emplace(handle, std::move(object));
    return handle;
  }

  absl::StatusOr<std::shared_ptr<Object>> Find(Handle* handle) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = objects_.find(handle);
    if (found != objects_.end()) return found->second;
    return absl::InvalidArgumentError(
        handle == nullptr
            ? absl::StrCat("the ", kind_, " is NULL")
            : absl::StrCat("the pointer is not a valid ", kind_, ", or the ", kind_, " was freed"));
  }

  // The object ends with its last user, outside of any lock.
  void Free(Handle** handle) noexcept {
    if (handle == nullptr) return;
    std::shared_ptr<Object> freed;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto found = objects_.find(std::exchange(*handle, nullptr));
      if (found == objects_.end()) return;
      freed = std::move(found->second);
      objects_.erase(found);
    }
  }

 private:
  const char* const kind_;
  mutable std::mutex mutex_;
  std::unordered_map<Handle*, std::shared_ptr<Object>> objects_;
};

}  // namespace geminid::c_api

#endif  // GEMINID_CLIENT_C_API_HANDLES_H_
