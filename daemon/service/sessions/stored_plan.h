// A session's plan and the trace that it was made from, stored for the next daemon and for people
// who ask to see them.
//
//   +----------------+-------------+------------+
//   | StoredPlanHeader | v1.Trace    | v1.Plan    |
//   | 48 B           | trace_bytes | plan_bytes |
//   +----------------+-------------+------------+
//
// A memfd that is written once and then sealed, so every reader sees one whole plan. It enters the
// store only when it is complete.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_STORED_PLAN_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_STORED_PLAN_H_

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "geminid/v1/plan.pb.h"
#include "geminid/v1/trace.pb.h"
#include "proto/shm/types.h"

namespace geminid::service {

inline constexpr uint32_t kKeptPlanMagic = 0x4e4c5047;  // "GPLN"
inline constexpr uint32_t kKeptPlanVersion = 1;
// A plan is stored if the message of its trace is no larger.
inline constexpr uint64_t kMaxKeptTraceBytes = uint64_t{16} << 20;

struct StoredPlanHeader {
  uint32_t magic;
  uint32_t version;
  uint64_t session;
  uint64_t trace_bytes;
  uint64_t plan_bytes;
  uint32_t crc32c;  // of every byte before it, and of both messages
  uint32_t reserved[3];
};
static_assert(sizeof(StoredPlanHeader) == 48);

// Thread-safe: it never changes.
class StoredPlan {
 public:
  struct Contents {
    v1::Trace trace;
    v1::Plan plan;
  };

  // RESOURCE_EXHAUSTED when the trace is larger than kMaxKeptTraceBytes, or there is no memory.
  static absl::StatusOr<StoredPlan> Create(shm::SessionId session, const v1::Trace& trace,
                                           const v1::Plan& plan);
  // A plan that an earlier daemon stored. Read() says whether it is sound.
  static absl::StatusOr<StoredPlan> Adopt(base::UniqueFd fd);

  // FAILED_PRECONDITION: another release wrote it. DATA_LOSS: it is damaged, another session's, or
  // contradicts itself. The contents have passed ValidateTrace, name no chunk or moment that the
  // trace lacks, and belong together.
  absl::StatusOr<Contents> Read(shm::SessionId session) const;

  const base::UniqueFd& fd() const { return fd_; }
  uint64_t bytes() const { return bytes_; }  // whole pages

 private:
  StoredPlan(base::UniqueFd fd, uint64_t bytes) : fd_(std::move(fd)), bytes_(bytes) {}

  base::UniqueFd fd_;
  uint64_t bytes_ = 0;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_STORED_PLAN_H_
