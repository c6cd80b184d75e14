// All that a client may write into shared memory: requests, leases, completions and cursors, in any
// order and at any time, against the daemon's own hub.
#include <cstring>
#include <memory>
#include <span>

#include "tests/fuzz/fuzz_hub.h"
#include "tests/fuzz/fuzz_target.h"

namespace geminid::fuzz {
namespace {

using service::SessionHub;
using service::SessionPtr;

// Eight chunks, half of them with a home, and an arena that has room for three.
SessionPtr OpenFullSession(SessionHub* hub, base::UniqueFd* client) {
  SessionPtr session = OpenSession(hub, client);
  Require(hub->CreateArena(session, 3 * kMiB).ok(), "there is room for its arena");
  std::vector<core::ChunkSpec> chunks;
  for (int i = 0; i < 8; ++i) {
    core::ChunkSpec chunk;
    chunk.name = "chunk";
    chunk.kind = i % 2 == 0 ? shm::ChunkKind::kGeneric : shm::ChunkKind::kGatheredWeight;
    chunk.bytes = kMiB;
    chunk.has_home = i % 2 == 0;
    chunks.push_back(chunk);
  }
  Require(hub->Allocate(session, chunks).ok(), "there is room for its chunks");
  return session;
}

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return at_ == size_; }
  uint64_t Take(size_t bytes) {
    uint64_t value = 0;
    const size_t take = std::min(bytes, size_ - at_);
    std::memcpy(&value, data_ + at_, take);
    at_ += take;
    return value;
  }

 private:
  const uint8_t* const data_;
  const size_t size_;
  size_t at_ = 0;
};

// Mostly what the daemon can take for good, or every input would end at the first word.
shm::Request NextRequest(Bytes* bytes, uint64_t id) {
  shm::Request request = {};
  request.request_id = id;
  request.op = static_cast<shm::RequestOp>(bytes->Take(1) % 10);
  request.flags = static_cast<uint16_t>(bytes->Take(1));
  request.priority = static_cast<shm::Priority>(bytes->Take(1));
  request.cause = static_cast<shm::TransferCause>(bytes->Take(1));
  request.deadline_moment = static_cast<uint16_t>(bytes->Take(1));
  request.source = shm::ChunkId{static_cast<uint32_t>(bytes->Take(1)) % 10};
  request.destination = shm::ChunkId{static_cast<uint32_t>(bytes->Take(1)) % 10};
  const uint64_t shape = bytes->Take(1);
  request.bytes = shape & 1 ? bytes->Take(8) : kMiB;
  request.source_offset = shape & 2 ? bytes->Take(8) : 0;
  request.destination_offset = shape & 4 ? bytes->Take(8) : 0;
  request.device_offset = shape & 8 ? bytes->Take(8) : shape & 16 ? bytes->Take(1) : ~uint64_t{0};
  return request;
}

void WriteSomething(Bytes* bytes, shm::ClientSegment* segment, uint64_t* written) {
  switch (bytes->Take(1) % 8) {
    case 0:
      segment->lease[bytes->Take(1) % 10].store(bytes->Take(8));
      return;
    case 1:
      segment->completion[bytes->Take(1) % shm::kCompletionWords].store(bytes->Take(2));
      return;
    case 2:
      segment->cursor.responses_read.store(*written);
      return;
    case 3:
      if (bytes->Take(1) == 0xff) segment->cursor.requests_written.store(bytes->Take(8));
      return;
    case 4:
      if (bytes->Take(1) == 0xff) segment->cursor.responses_read.store(bytes->Take(8));
      return;
    default: {
      shm::Request request = NextRequest(bytes, *written + 1);
      request.sequence = *written + 1;
      segment->requests[*written % shm::kRingEntries] = request;
      segment->cursor.requests_written.store(++*written);
    }
  }
}

void RunOne(const uint8_t* data, size_t size) {
  static service::Limits limits{config::TenantShares{}};
  static SessionHub* const hub = MakeHub({}, &limits, 64 * kMiB).release();
  base::UniqueFd client;
  const SessionPtr session = OpenFullSession(hub, &client);
  // As the client maps it.
  absl::StatusOr<base::Mapping> mapping =
      base::Mapping::Map(session->segments().client_fd(), sizeof(shm::ClientSegment));
  Require(mapping.ok(), "the client can map its segment");
  auto* const segment = reinterpret_cast<shm::ClientSegment*>(mapping->data());
  Bytes bytes(data, size);
  uint64_t written = 0;
  SessionHub::PumpResult pumped = SessionHub::PumpResult::kMore;
  while (!bytes.empty() && pumped != SessionHub::PumpResult::kCorrupt) {
    for (int i = 0; i < 4; ++i) WriteSomething(&bytes, segment, &written);
    pumped = hub->Pump(session);
    hub->Tick();
  }
  const auto check = [](const core::Engine& engine, const auto&) { return engine.Check(); };
  absl::Status status = hub->Inspect(check);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  Require(status.ok(), "the books add up whatever a client writes");
  auto closed = hub->Close(session, core::CloseReason::kDied);
  Require(closed.now, "a session can be closed");
  hub->Destroy(std::move(closed.garbage));
  Require(hub->Inspect(check).ok(), "the books add up when a client is gone");
}

}  // namespace
}  // namespace geminid::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  geminid::fuzz::RunOne(data, std::min<size_t>(size, 4096));
  return 0;
}
