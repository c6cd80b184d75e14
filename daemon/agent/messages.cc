#include "daemon/agent/messages.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace geminid::agent {
namespace {

// Any version begins with these two words.
struct Prefix {
  uint32_t magic;
  uint32_t version;
};

absl::Status CheckPrefix(std::span<const std::byte> bytes, uint32_t magic, size_t size) {
  Prefix prefix;
  if (bytes.size() < sizeof(prefix)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", bytes.size(), " bytes; expected ", size));
  }
  std::memcpy(&prefix, bytes.data(), sizeof(prefix));
  if (prefix.magic != magic) {
    return absl::InvalidArgumentError("the bytes are not a message of geminid and its agents");
  }
  if (prefix.version != kAgentVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("this program speaks version ", kAgentVersion, ", the other version ",
                     prefix.version, "; install geminid and geminid-agent of one release"));
  }
  if (bytes.size() != size) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", bytes.size(), " bytes; expected ", size));
  }
  return absl::OkStatus();
}

bool IsShownText(std::span<const char> field) {
  const auto end = std::find(field.begin(), field.end(), '\0');
  return end != field.end() && std::all_of(field.begin(), end, [](char c) {
           return absl::ascii_isprint(static_cast<unsigned char>(c));
         });
}

absl::Status CheckGpu(const GpuFacts& gpu, bool needs_granularity) {
  if (!IsShownText(gpu.uuid) || !IsShownText(gpu.pci) || !IsShownText(gpu.name)) {
    return absl::InvalidArgumentError("a GPU's name is not text");
  }
  if (absl::StatusOr<shm::Uuid> uuid = ParseUuid(gpu.uuid); !uuid.ok()) return uuid.status();
  if (gpu.numa_node < shm::kNoNumaNode || gpu.is_mig > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("GPU ", gpu.uuid, " reports an impossible NUMA node or MIG flag"));
  }
  if (gpu.total_bytes == 0 || gpu.total_bytes > kMaxGpuBytes || gpu.free_bytes > gpu.total_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("GPU ", gpu.uuid, " reports ", gpu.free_bytes,
                                                   " of ", gpu.total_bytes, " bytes free"));
  }
  const bool has_granularity =
      std::has_single_bit(gpu.granularity_bytes) && gpu.granularity_bytes <= kMaxGranularityBytes;
  if (needs_granularity ? !has_granularity : gpu.granularity_bytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("GPU ", gpu.uuid, " reports slabs of ", gpu.granularity_bytes, " bytes"));
  }
  return absl::OkStatus();
}

bool AreSane(const Faults& faults) {
  if (faults.known > kAllKnown || faults.retired_pages_pending > 1 ||
      faults.row_remap_pending > 1 || faults.row_remap_failed > 1 || faults.xids > kMostXids) {
    return false;
  }
  return std::all_of(faults.xid, faults.xid + faults.xids,
                     [](uint32_t xid) { return xid <= kLargestXid; });
}

absl::Status CheckHealth(const Health& health) {
  if (health.total_bytes == 0 || health.total_bytes > kMaxGpuBytes ||
      health.free_bytes > health.total_bytes || health.slab_bytes > kMaxGpuBytes ||
      health.slabs > health.slab_bytes || health.has_context > 1 || !AreSane(health.faults)) {
    return absl::InvalidArgumentError("the health of a GPU contradicts itself");
  }
  return absl::OkStatus();
}

absl::Status CheckFailure(const Reply& reply) {
  if (reply.status == 0 ||
      reply.status > static_cast<uint32_t>(absl::StatusCode::kUnauthenticated) ||
      !IsShownText(reply.error)) {
    return absl::InvalidArgumentError("an error without a reason");
  }
  return absl::OkStatus();
}

// Checks the fields that belong to the type alone.
absl::Status CheckBody(const Reply& reply) {
  switch (reply.type) {
    case ReplyType::kHello:
      return CheckGpu(reply.gpu, /*needs_granularity=*/true);
    case ReplyType::kFound:
      return CheckGpu(reply.gpu, /*needs_granularity=*/false);
    case ReplyType::kHealthy:
      return CheckHealth(reply.health);
    case ReplyType::kFailed:
      return CheckFailure(reply);
    case ReplyType::kNoMore:
    case ReplyType::kCreated:
    case ReplyType::kScrubbed:
    case ReplyType::kReleased:
      return absl::OkStatus();
    case ReplyType::kNone:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a reply of unknown type ", static_cast<uint32_t>(reply.type)));
}

bool AnswersNothing(ReplyType type) {
  return type == ReplyType::kHello || type == ReplyType::kFound || type == ReplyType::kNoMore;
}

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Request MakeRequest(RequestType type, uint64_t id, uint64_t slab, uint64_t bytes) {
  Request request = {};
  request.magic = kRequestMagic;
  request.version = kAgentVersion;
  request.type = type;
  request.id = id;
  request.slab = slab;
  request.bytes = bytes;
  return request;
}

Reply MakeReply(ReplyType type, uint64_t id) {
  Reply reply;
  std::memset(&reply, 0, sizeof(reply));  // all of the union
  reply.magic = kReplyMagic;
  reply.version = kAgentVersion;
  reply.type = type;
  reply.id = id;
  return reply;
}

Reply MakeFailure(uint64_t id, const absl::Status& error) {
  Reply reply = MakeReply(ReplyType::kFailed, id);
  reply.status = static_cast<uint32_t>(error.code());
  std::string text(error.message());
  for (char& c : text) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  SetText(text, reply.error);
  return reply;
}

absl::StatusOr<Request> ReadRequest(std::span<const std::byte> bytes) {
  absl::Status status = CheckPrefix(bytes, kRequestMagic, sizeof(Request));
  if (!status.ok()) return status;
  Request request;
  std::memcpy(&request, bytes.data(), sizeof(request));
  if (request.type < RequestType::kCreate || request.type > RequestType::kHealth) {
    return absl::InvalidArgumentError(
        absl::StrCat("a request of unknown type ", static_cast<uint32_t>(request.type)));
  }
  if (request.id == 0) return absl::InvalidArgumentError("a request without a number");
  const bool creates = request.type == RequestType::kCreate;
  if (creates != (request.bytes != 0) || request.bytes > kMaxGpuBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a request for ", request.bytes, " bytes"));
  }
  const bool names_slab =
      request.type == RequestType::kScrub || request.type == RequestType::kRelease;
  if (names_slab != (request.slab != 0)) {
    return absl::InvalidArgumentError(absl::StrCat("a request about slab ", request.slab));
  }
  return request;
}

absl::StatusOr<Reply> ReadReply(std::span<const std::byte> bytes, size_t descriptors) {
  absl::Status status = CheckPrefix(bytes, kReplyMagic, sizeof(Reply));
  if (!status.ok()) return status;
  Reply reply;
  std::memcpy(&reply, bytes.data(), sizeof(reply));
  if (status = CheckBody(reply); !status.ok()) return status;
  const bool failed = reply.type == ReplyType::kFailed;
  if (!failed && reply.status != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a good reply with status ", reply.status));
  }
  if (!failed && AnswersNothing(reply.type) != (reply.id == 0)) {
    return absl::InvalidArgumentError(absl::StrCat("a reply to request ", reply.id));
  }
  const bool created = reply.type == ReplyType::kCreated;
  if (created != (reply.slab != 0)) {
    return absl::InvalidArgumentError(absl::StrCat("a reply about slab ", reply.slab));
  }
  if (descriptors != (created ? 1 : 0)) {
    return absl::InvalidArgumentError(absl::StrCat("a reply of type ",
                                                   static_cast<uint32_t>(reply.type), " with ",
                                                   descriptors, " descriptors"));
  }
  return reply;
}

absl::Status StatusOf(const Reply& failure) {
  return absl::Status(static_cast<absl::StatusCode>(failure.status), failure.error);
}

void SetText(const std::string& text, std::span<char> field) {
  const size_t fits = std::min(text.size(), field.size() - 1);
  std::memcpy(field.data(), text.data(), fits);
  std::fill(field.begin() + static_cast<std::ptrdiff_t>(fits), field.end(), '\0');
}

absl::StatusOr<shm::Uuid> ParseUuid(const std::string& text) {
  constexpr size_t kPrefix = 4;
  constexpr size_t kText = 36;  // 32 digits and 4 hyphens
  absl::Status wrong = absl::InvalidArgumentError(
      absl::StrCat("'", text,
                   "' is not the UUID of a GPU, such as "
                   "GPU-f81d4fae-7dec-11d0-a765-00a0c91e6bf6; nvidia-smi -L lists them"));
  const std::string prefix = text.substr(0, kPrefix);
  if ((prefix != "GPU-" && prefix != "MIG-") || text.size() != kPrefix + kText) return wrong;
  shm::Uuid uuid;
  size_t digits = 0;
  for (size_t i = 0; i < kText; ++i) {
    const char c = text[kPrefix + i];
    if (i == 8 || i == 13 || i == 18 || i == 23) {
      if (c != '-') return wrong;
      continue;
    }
    const int digit = DigitOf(c);
    if (digit < 0) return wrong;
    uint8_t& byte = uuid[digits / 2];
    byte = static_cast<uint8_t>(digits % 2 == 0 ? digit << 4 : byte | digit);
    ++digits;
  }
  return uuid;
}

}  // namespace geminid::agent
