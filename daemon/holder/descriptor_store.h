// Where a daemon leaves descriptors for its successor.
#ifndef GEMINID_DAEMON_HOLDER_DESCRIPTOR_STORE_H_
#define GEMINID_DAEMON_HOLDER_DESCRIPTOR_STORE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace geminid::holder {

struct KeptDescriptor {
  std::string name;
  base::UniqueFd fd;
};

// Thread-safe. What Put returned OK for is kept whatever happens to this process.
class DescriptorStore {
 public:
  virtual ~DescriptorStore() = default;

  // Keeps another descriptor of what `fd` is; what had that name is closed. Names: see
  // holder::IsName. UNAVAILABLE when there is nobody to keep it any more.
  virtual absl::Status Put(const std::string& name, int fd) = 0;
  virtual absl::Status Remove(const std::string& name) = 0;
  // What an earlier daemon left. It stays kept: should this one die now, the next gets it again.
  virtual absl::StatusOr<std::vector<KeptDescriptor>> List() = 0;
  // Nothing is to be kept any more.
  virtual void Finish() = 0;

  // Whether sessions go on when the daemon is told to stop: because only somebody else knows
  // whether it will be started again.
  virtual bool OutlivesStop() const { return false; }
  // Its end says that there is nobody to keep anything; negative: there is no such sign.
  virtual int watch_fd() const { return -1; }
  // After that: somebody again, who has nothing.
  virtual absl::Status Renew() { return absl::UnimplementedError("it has no end"); }
};

// Keeps nothing: sessions end with the daemon.
class NoStore final : public DescriptorStore {
 public:
  absl::Status Put(const std::string&, int) override { return absl::OkStatus(); }
  absl::Status Remove(const std::string&) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<KeptDescriptor>> List() override {
    return std::vector<KeptDescriptor>();
  }
  void Finish() override {}
};

}  // namespace geminid::holder

#endif  // GEMINID_DAEMON_HOLDER_DESCRIPTOR_STORE_H_
