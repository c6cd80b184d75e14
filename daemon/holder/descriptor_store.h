// Stores a daemon's descriptors for the next daemon.
#ifndef GEMINID_DAEMON_HOLDER_DESCRIPTOR_STORE_H_
#define GEMINID_DAEMON_HOLDER_DESCRIPTOR_STORE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace geminid::holder {

struct StoredDescriptor {
  std::string name;
  base::UniqueFd fd;
};

// Thread-safe. A descriptor that Put returned OK for stays stored if this process ends.
class DescriptorStore {
 public:
  virtual ~DescriptorStore() = default;

  // Stores a duplicate of `fd`. Use each name once: not every store replaces an entry. Names: see
  // holder::IsName. UNAVAILABLE: the store has gone.
  virtual absl::Status Put(const std::string& name, int fd) = 0;
  virtual absl::Status Remove(const std::string& name) = 0;
  // An earlier daemon's descriptors. They stay stored: if this one dies now, the next gets them.
  virtual absl::StatusOr<std::vector<StoredDescriptor>> List() = 0;
  // No descriptor needs to be stored any more.
  virtual void Finish() = 0;

  // Whether sessions go on when the daemon is told to stop, because only the service manager knows
  // whether it will be started again.
  virtual bool OutlivesStop() const { return false; }
  // A descriptor that hangs up when the store has gone; negative: there is no such sign.
  virtual int watch_fd() const { return -1; }
  // After that: starts a new store, which is empty.
  virtual absl::Status Renew() { return absl::UnimplementedError("it has no end"); }
};

// Stores nothing: sessions end with the daemon.
class NoStore final : public DescriptorStore {
 public:
  absl::Status Put(const std::string&, int) override { return absl::OkStatus(); }
  absl::Status Remove(const std::string&) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<StoredDescriptor>> List() override {
    return std::vector<StoredDescriptor>();
  }
  void Finish() override {}
};

}  // namespace geminid::holder

#endif  // GEMINID_DAEMON_HOLDER_DESCRIPTOR_STORE_H_
