// What geminid and its agents say to each other, in both directions. The first byte is the number
// of descriptors that come with it.
#include <cstring>
#include <span>

#include "daemon/agent/messages.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace agent = geminid::agent;
  using geminid::fuzz::Require;
  if (size == 0) return 0;
  const auto message = std::as_bytes(std::span(data, size)).subspan(1);
  if (const auto request = agent::ReadRequest(message); request.ok()) {
    Require(request->id != 0, "a request has a number");
    Require(request->bytes <= agent::kMaxGpuBytes, "no GPU is larger");
  }
  const auto reply = agent::ReadReply(message, data[0]);
  if (!reply.ok()) return 0;
  Require((reply->type == agent::ReplyType::kCreated) == (data[0] == 1), "one descriptor a slab");
  if (reply->type == agent::ReplyType::kFailed) {
    Require(!agent::StatusOf(*reply).ok(), "a failure is an error");
  }
  if (reply->type == agent::ReplyType::kHello) {
    Require(std::memchr(reply->gpu.name, 0, sizeof(reply->gpu.name)) != nullptr, "a name ends");
    Require(agent::ParseUuid(reply->gpu.uuid).ok(), "a GPU has a UUID");
    Require(reply->gpu.granularity_bytes > 0, "slabs have a size");
  }
  if (reply->type == agent::ReplyType::kHealthy) {
    Require(reply->health.faults.xids <= agent::kMostXids, "Xids are where they are looked for");
  }
  return 0;
}
