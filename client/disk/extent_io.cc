#include "client/disk/extent_io.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/status_macros.h"

namespace geminid::disk {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(1);
constexpr int kRequestBits = 24;  // of a tag: the request's index

uint64_t TagOf(ExtentIo::Ticket ticket, size_t request) { return ticket << kRequestBits | request; }

const char* NameOfCall(IoKind kind) {
  switch (kind) {
    case IoKind::kRead:
      return "read";
    case IoKind::kWrite:
      return "write";
    case IoKind::kSync:
      return "sync";
  }
  return "use";
}

}  // namespace

ExtentIo::ExtentIo(const StripedFiles& files, const ExtentMap& extents, std::unique_ptr<FileIo> io,
                   absl::Duration timeout, DiskTraffic* traffic)
    : files_(files),
      extents_(extents),
      io_(std::move(io)),
      timeout_(timeout),
      traffic_(*traffic),
      progress_(base::Deadline::In(timeout)) {}

// io_'s destructor waits.
ExtentIo::~ExtentIo() = default;

ExtentIo::Ticket ExtentIo::Add(Operation operation) {
  if (operations_.empty()) progress_ = base::Deadline::In(timeout_);
  const Ticket ticket = next_++;
  const uint64_t offset = extents_.offset(operation.extent);
  const IoKind kind = operation.kind;
  const std::span<std::byte> buffer = operation.buffer;
  operations_[ticket] = std::move(operation);
  for (const StripeRange& piece : CutIntoStripes(files_.stripes(), offset, buffer.size())) {
    AddRequest(ticket,
               {.kind = kind,
                .fd = files_.fd(piece.file),
                .offset = piece.file_offset,
                .data = buffer.data() + piece.at,
                .bytes = static_cast<uint32_t>(piece.bytes)},
               piece.file);
  }
  broken_.Update(StartWaiting());
  return ticket;
}

void ExtentIo::AddRequest(Ticket ticket, const IoRequest& request, uint32_t file) {
  Operation& operation = operations_[ticket];
  const auto number = static_cast<uint32_t>(operation.requests.size());
  operation.requests.push_back(request);
  operation.requests.back().tag = TagOf(ticket, number);
  operation.files.push_back(file);
  operation.finished.push_back(false);
  ++operation.missing;
  waiting_.emplace_back(ticket, number);
}

ExtentIo::Ticket ExtentIo::StartRead(size_t extent, std::span<std::byte> buffer) {
  return Add(
      {.kind = IoKind::kRead, .extent = extent, .buffer = buffer.first(extents_.bytes(extent))});
}

void ExtentIo::Seal(size_t extent, const ExtentKey& key, std::span<std::byte> buffer,
                    const ForEach& for_each) const {
  const ExtentContents contents = {.extent = buffer.first(extents_.bytes(extent)),
                                   .payload_bytes = extents_.payload_bytes(extent)};
  const std::span<std::byte> payload = contents.payload();
  std::fill(payload.data() + payload.size(), contents.extent.data() + contents.extent.size(),
            std::byte{});
  SealExtent(files_.identity(), key, contents, for_each);
}

ExtentIo::Ticket ExtentIo::StartSealed(size_t extent, std::span<std::byte> buffer) {
  return Add(
      {.kind = IoKind::kWrite, .extent = extent, .buffer = buffer.first(extents_.bytes(extent))});
}

ExtentContents ExtentIo::ContentsOf(const Operation& operation) const {
  return {.extent = operation.buffer, .payload_bytes = extents_.payload_bytes(operation.extent)};
}

absl::Status ExtentIo::StartWaiting() {
  GEMINID_RETURN_IF_ERROR(broken_);
  std::vector<IoRequest> starting;
  while (!waiting_.empty() && under_way_ + starting.size() < io_->depth()) {
    const auto [ticket, request] = waiting_.front();
    waiting_.pop_front();
    starting.push_back(operations_[ticket].requests[request]);
  }
  if (starting.empty()) return absl::OkStatus();
  under_way_ += static_cast<uint32_t>(starting.size());
  return io_->Start(starting);
}

// A result may have fewer bytes than requested: then the rest is requested again, from a whole
// block on.
void ExtentIo::Take(const IoResult& result) {
  --under_way_;
  const Ticket ticket = result.tag >> kRequestBits;
  const auto number = static_cast<uint32_t>(result.tag & ((1u << kRequestBits) - 1));
  Operation& operation = operations_.at(ticket);
  IoRequest& request = operation.requests[number];
  const bool put_off = result.result == -EAGAIN || result.result == -EINTR;
  if (!put_off) progress_ = base::Deadline::In(timeout_);
  if (put_off && !progress_.Passed()) {
    waiting_.emplace_back(ticket, number);
    return;
  }
  const bool is_sync = request.kind == IoKind::kSync;
  const auto done = result.result < 0 ? uint64_t{0} : static_cast<uint64_t>(result.result);
  if (request.kind == IoKind::kRead) traffic_.read_bytes += done;
  if (request.kind == IoKind::kWrite) traffic_.written_bytes += done;
  if (result.result < 0) {
    operation.status.Update(
        DiskError(static_cast<int>(-result.result), Describe(operation, number)));
  } else if (!is_sync && done < request.bytes) {
    const auto whole = static_cast<uint32_t>(done / kBlockBytes * kBlockBytes);
    if (whole > 0) {
      request.offset += whole;
      request.data += whole;
      request.bytes -= whole;
      waiting_.emplace_back(ticket, number);
      return;
    }
    operation.status.Update(request.kind == IoKind::kRead
                                ? TruncatedError(Describe(operation, number))
                                : DiskError(ENOSPC, Describe(operation, number)));
  }
  operation.finished[number] = true;
  --operation.missing;
}

absl::Status ExtentIo::WaitFor(Ticket ticket) {
  while (operations_.at(ticket).missing > 0) {
    GEMINID_RETURN_IF_ERROR(broken_);
    broken_.Update(StartWaiting());
    const absl::StatusOr<std::vector<IoResult>> results = io_->Wait(base::Deadline::In(timeout_));
    if (absl::IsDeadlineExceeded(results.status())) {
      const Operation& waits = operations_.at(ticket);
      const auto first = std::ranges::find(waits.finished, false) - waits.finished.begin();
      const FailedCall stuck = Describe(waits, static_cast<size_t>(first));
      broken_ = absl::DeadlineExceededError(
          absl::StrCat(stuck.path, ": the disk has completed no request for ",
                       absl::FormatDuration(timeout_), " (", stuck.call, " at byte ", stuck.offset,
                       "); look at the disk (dmesg), or raise the timeout"));
    }
    if (!results.ok()) {
      broken_.Update(results.status());
      continue;
    }
    const size_t put_off = waiting_.size();
    for (const IoResult& result : *results) Take(result);
    // Nothing but postponed requests: the kernel lacks memory for a moment.
    if (waiting_.size() == put_off + results->size()) absl::SleepFor(kPause);
  }
  return operations_.at(ticket).status;
}

// Data survives a process's end in the page cache, and after a power failure it is of no use, since
// the weights are in memory. But only a sync reports that the page cache could not write, while the
// older version is still there.
absl::Status ExtentIo::FinishWriting(Ticket ticket) {
  GEMINID_RETURN_IF_ERROR(WaitFor(ticket));
  std::vector<uint32_t> written = operations_.at(ticket).files;
  std::ranges::sort(written);
  written.erase(std::ranges::unique(written).begin(), written.end());
  for (const uint32_t file : written) {
    if (files_.is_direct(file)) continue;
    AddRequest(ticket, {.kind = IoKind::kSync, .fd = files_.fd(file)}, file);
  }
  return WaitFor(ticket);
}

absl::Status ExtentIo::Finish(Ticket ticket) {
  const bool writes = operations_.at(ticket).kind == IoKind::kWrite;
  const absl::Status status = writes ? FinishWriting(ticket) : WaitFor(ticket);
  // Requests in progress still have results to come.
  if (operations_.at(ticket).missing == 0) operations_.erase(ticket);
  return status;
}

absl::Status ExtentIo::FinishRead(Ticket ticket, const ExtentKey& key, bool may_be_blank,
                                  const ForEach& for_each) {
  const size_t extent = operations_.at(ticket).extent;
  const ExtentContents contents = ContentsOf(operations_.at(ticket));
  GEMINID_RETURN_IF_ERROR(Finish(ticket));
  if (may_be_blank && IsBlank(contents)) {
    std::ranges::fill(contents.payload(), std::byte{});
    return absl::OkStatus();
  }
  return InExtent(extent, CheckExtent(files_.identity(), key, contents, for_each));
}

FailedCall ExtentIo::Describe(const Operation& operation, size_t request) const {
  const IoRequest& asked = operation.requests[request];
  return {.call = NameOfCall(asked.kind),
          .path = files_.path(operation.files[request]),
          .offset = asked.offset,
          .bytes = asked.bytes};
}

absl::Status ExtentIo::InExtent(size_t extent, const absl::Status& status) const {
  if (status.ok()) return status;
  const StripeRange first =
      CutIntoStripes(files_.stripes(), extents_.offset(extent), kBlockBytes).front();
  return absl::Status(
      status.code(),
      absl::StrCat(files_.path(first.file), ": extent ", extent, " at byte ", first.file_offset,
                   " cannot be used: ", std::string(status.message()),
                   ". Look at the disk (dmesg, smartctl), and go on from a checkpoint"));
}

}  // namespace geminid::disk
