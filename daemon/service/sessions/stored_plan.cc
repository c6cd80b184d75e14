#include "daemon/service/sessions/stored_plan.h"

#include <cstddef>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/memfd.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "daemon/planner/contract/trace.h"
#include "proto/messages/plan_messages.h"
#include "proto/messages/trace_messages.h"
#include "proto/shm/crc32c.h"

namespace geminid::service {
namespace {

// A plan has a load and a drop for some of its trace's uses, and is about as large.
constexpr uint64_t kMostBytes = 4 * kMaxKeptTraceBytes;

uint32_t ChecksumOf(const StoredPlanHeader& header, const std::string& file) {
  const uint32_t head = shm::Crc32c(&header, offsetof(StoredPlanHeader, crc32c));
  return shm::Crc32c(file.data() + sizeof(header), file.size() - sizeof(header), head);
}

absl::StatusOr<StoredPlanHeader> CheckedHeader(const std::string& file, shm::SessionId session) {
  StoredPlanHeader header = {};
  if (file.size() < sizeof(header)) return absl::DataLossError("it is truncated");
  std::memcpy(&header, file.data(), sizeof(header));
  if (header.magic != kKeptPlanMagic) return absl::DataLossError("it is not a plan");
  if (header.version != kKeptPlanVersion) {
    return absl::FailedPreconditionError(absl::StrCat("it is of version ", header.version,
                                                      ", and this release reads version ",
                                                      kKeptPlanVersion));
  }
  const uint64_t bytes = file.size() - sizeof(header);
  if (header.trace_bytes > bytes || header.plan_bytes != bytes - header.trace_bytes) {
    return absl::DataLossError("the sizes of its parts differ from those in its header");
  }
  if (header.crc32c != ChecksumOf(header, file)) return absl::DataLossError("it is damaged");
  if (header.session != shm::Value(session)) {
    return absl::DataLossError(absl::StrCat("it belongs to session ", header.session));
  }
  return header;
}

}  // namespace

absl::StatusOr<StoredPlan> StoredPlan::Create(shm::SessionId session, const v1::Trace& trace,
                                              const v1::Plan& plan) {
  StoredPlanHeader header = {};
  header.magic = kKeptPlanMagic;
  header.version = kKeptPlanVersion;
  header.session = shm::Value(session);
  header.trace_bytes = trace.ByteSizeLong();
  header.plan_bytes = plan.ByteSizeLong();
  const uint64_t bytes = sizeof(header) + header.trace_bytes + header.plan_bytes;
  if (header.trace_bytes > kMaxKeptTraceBytes || bytes > kMostBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a trace of ", base::FormatBytes(header.trace_bytes),
                     " is not stored; at most ", base::FormatBytes(kMaxKeptTraceBytes), " are"));
  }
  std::string file(sizeof(header), 0);
  file.reserve(bytes);
  if (!trace.AppendToString(&file) || !plan.AppendToString(&file)) {
    return absl::InternalError("a plan could not be written as a message");
  }
  header.crc32c = ChecksumOf(header, file);
  std::memcpy(file.data(), &header, sizeof(header));
  GEMINID_ASSIGN_OR_RETURN(
      base::UniqueFd fd, base::CreateWrittenMemfd(
                             absl::StrCat("geminid-session", shm::Value(session), "-plan"), file));
  return StoredPlan(std::move(fd), base::RoundUpToPage(file.size()));
}

absl::StatusOr<StoredPlan> StoredPlan::Adopt(base::UniqueFd fd) {
  GEMINID_ASSIGN_OR_RETURN(const std::string file, base::ReadMemfd(fd, kMostBytes));
  return StoredPlan(std::move(fd), base::RoundUpToPage(file.size()));
}

absl::StatusOr<StoredPlan::Contents> StoredPlan::Read(shm::SessionId session) const {
  GEMINID_ASSIGN_OR_RETURN(const std::string file, base::ReadMemfd(fd_, kMostBytes));
  GEMINID_ASSIGN_OR_RETURN(const StoredPlanHeader header, CheckedHeader(file, session));
  const char* const bytes = file.data() + sizeof(header);
  Contents contents;
  if (!contents.trace.ParseFromArray(bytes, static_cast<int>(header.trace_bytes)) ||
      !contents.plan.ParseFromArray(bytes + header.trace_bytes,
                                    static_cast<int>(header.plan_bytes))) {
    return absl::DataLossError("its messages cannot be read");
  }
  const auto trace = messages::TraceFromMessage<planner::Trace>(contents.trace);
  if (absl::Status valid = planner::ValidateTrace(trace); !valid.ok()) {
    return absl::DataLossError(valid.message());
  }
  if (contents.plan.trace_hash() != planner::TraceHash(trace)) {
    return absl::DataLossError("it was made for another trace");
  }
  if (!messages::IsWithin(contents.plan, trace.chunks.size(), trace.moments.size())) {
    return absl::DataLossError("it names chunks or moments that its trace does not have");
  }
  return contents;
}

}  // namespace geminid::service
