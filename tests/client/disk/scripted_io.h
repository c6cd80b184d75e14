// A FileIo whose requests fail as a test says. All other requests are carried out.
#ifndef GEMINID_TESTS_CLIENT_DISK_SCRIPTED_IO_H_
#define GEMINID_TESTS_CLIENT_DISK_SCRIPTED_IO_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/disk/file_io.h"

namespace geminid::disk {

// What happens to a request. Without a value the request is carried out. With a result, the request
// has this result. With `never`, it has none.
struct Fate {
  std::optional<int64_t> result{};
  bool never = false;
};
using Script = std::function<Fate(const IoRequest&)>;

class ScriptedIo final : public FileIo {
 public:
  // `script` outlives this object, and may change.
  ScriptedIo(std::unique_ptr<FileIo> beneath, const Script* script)
      : beneath_(std::move(beneath)), script_(*script) {}

  absl::Status Start(std::span<const IoRequest> requests) override {
    std::vector<IoRequest> carried;
    for (const IoRequest& request : requests) {
      const Fate fate = script_ ? script_(request) : Fate{};
      if (fate.never) continue;
      if (fate.result.has_value()) {
        results_.push_back({.tag = request.tag, .result = *fate.result});
      } else {
        carried.push_back(request);
      }
    }
    under_way_ += carried.size();
    return carried.empty() ? absl::OkStatus() : beneath_->Start(carried);
  }

  // Returns at once if no further result can come.
  absl::StatusOr<std::vector<IoResult>> Wait(const base::Deadline& deadline) override {
    if (!results_.empty()) return std::exchange(results_, {});
    if (under_way_ == 0) return absl::DeadlineExceededError("nothing comes");
    absl::StatusOr<std::vector<IoResult>> results = beneath_->Wait(deadline);
    if (results.ok()) under_way_ -= results->size();
    return results;
  }

  absl::Status UseBuffers(std::span<const std::span<std::byte>> buffers) override {
    return beneath_->UseBuffers(buffers);
  }
  uint32_t depth() const override { return beneath_->depth(); }
  std::string how() const override { return beneath_->how(); }

 private:
  const std::unique_ptr<FileIo> beneath_;
  const Script& script_;
  std::vector<IoResult> results_;
  size_t under_way_ = 0;
};

}  // namespace geminid::disk

#endif  // GEMINID_TESTS_CLIENT_DISK_SCRIPTED_IO_H_
