// An agent without a GPU. Its slabs are memfds, and the letters of $GEMINID_PUPPET name its faults.
// The folder $GEMINID_PUPPET_FOLDER has a file for each slab, and the requests that the agent got.
//
//   hang_hello   says nothing           refuse       says in its last words that it cannot start
//   hang_create  never makes a slab     full         has no memory
//   garbage      answers with noise     twice        says hello twice
//   other_gpu    has another GPU        no_fd        makes slabs without a descriptor
//   hang_list    a probe says nothing   die_create   ends when it is asked for a slab
//   coarse       has slabs of 4 MiB     wrong_id     answers another request
//   xid          reports Xid 79 once
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "base/memfd.h"
#include "base/unique_fd.h"
#include "daemon/agent/messages.h"
#include "daemon/os/unix_socket.h"

namespace geminid::agent {
namespace {

constexpr uint64_t kTotalBytes = uint64_t{8} << 30;

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool Is(const std::string& fault) { return Variable("GEMINID_PUPPET") == fault; }

std::filesystem::path FileOf(uint64_t slab) {
  return std::filesystem::path(Variable("GEMINID_PUPPET_FOLDER")) / std::to_string(slab);
}

void Say(const base::UniqueFd& socket, const Reply& reply, std::span<const int> fds = {}) {
  (void)os::SendMessage(socket, std::as_bytes(std::span(&reply, 1)), fds);
}

GpuFacts Facts(const std::string& uuid, uint64_t granularity_bytes) {
  GpuFacts gpu = {};
  SetText(uuid, gpu.uuid);
  SetText("00000000:3A:00.0", gpu.pci);
  SetText("Puppet GPU", gpu.name);
  gpu.numa_node = shm::kNoNumaNode;
  gpu.total_bytes = kTotalBytes;
  gpu.free_bytes = kTotalBytes;
  gpu.granularity_bytes = granularity_bytes;
  return gpu;
}

[[noreturn]] void Hang() {
  for (;;) ::pause();
}

void Create(const base::UniqueFd& socket, const Request& request) {
  if (Is("hang_create")) Hang();
  if (Is("die_create")) ::_exit(3);
  if (Is("full")) {
    return Say(socket, MakeFailure(request.id, absl::ResourceExhaustedError("it is full")));
  }
  if (Is("garbage")) {
    const std::array<std::byte, 7> noise = {};
    (void)os::SendMessage(socket, noise, {});
    return;
  }
  static uint64_t slabs = 0;
  Reply reply = MakeReply(ReplyType::kCreated, request.id + (Is("wrong_id") ? 1 : 0));
  reply.slab = ++slabs;
  const absl::StatusOr<base::UniqueFd> memory = base::CreateSealedMemfd("puppet", request.bytes);
  std::ofstream(FileOf(reply.slab)) << "made";
  const std::array<int, 1> fds = {memory->get()};
  Say(socket, reply, Is("no_fd") ? std::span<const int>() : fds);
}

void Answer(const base::UniqueFd& socket, const Request& request) {
  switch (request.type) {
    case RequestType::kCreate:
      return Create(socket, request);
    case RequestType::kScrub:
      std::ofstream(FileOf(request.slab)) << "scrubbed";
      return Say(socket, MakeReply(ReplyType::kScrubbed, request.id));
    case RequestType::kRelease:
      std::filesystem::remove(FileOf(request.slab));
      return Say(socket, MakeReply(ReplyType::kReleased, request.id));
    default: {
      Reply reply = MakeReply(ReplyType::kHealthy, request.id);
      reply.health.total_bytes = kTotalBytes;
      reply.health.free_bytes = kTotalBytes / 2;
      reply.health.faults.known = kXids;
      static bool reported = false;
      if (Is("xid") && !std::exchange(reported, true)) {
        reply.health.faults.xids = 1;
        reply.health.faults.xid[0] = 79;
      }
      return Say(socket, reply);
    }
  }
}

void Probe(const base::UniqueFd& socket) {
  if (Is("hang_list")) Hang();
  if (Is("refuse")) return Say(socket, MakeFailure(0, absl::UnavailableError("no driver here")));
  Reply found = MakeReply(ReplyType::kFound, 0);
  found.gpu = Facts("GPU-00000000-0000-0000-0000-000000000001", 0);
  Say(socket, found);
  if (Is("garbage")) return Say(socket, Reply{});
  Say(socket, MakeReply(ReplyType::kNoMore, 0));
}

int Main(const std::string& mode, const std::string& uuid) {
  const base::UniqueFd socket(kAgentSocket);
  if (mode == "--probe") {
    Probe(socket);
    return 0;
  }
  if (Is("hang_hello")) Hang();
  if (Is("refuse")) {
    Say(socket, MakeFailure(0, absl::UnavailableError("no driver here")));
    return 1;
  }
  if (Variable("CUDA_VISIBLE_DEVICES") != uuid) return 2;
  Reply hello = MakeReply(ReplyType::kHello, 0);
  hello.gpu = Facts(Is("other_gpu") ? "GPU-00000000-0000-0000-0000-000000000009" : uuid,
                    uint64_t{Is("coarse") ? 4U : 2U} << 20);
  Say(socket, hello);
  if (Is("twice")) Say(socket, hello);
  std::array<std::byte, sizeof(Request)> buffer;
  for (;;) {
    pollfd entry = {.fd = socket.get(), .events = POLLIN, .revents = 0};
    ::poll(&entry, 1, -1);
    const os::Received received = os::ReceiveMessage(socket, buffer);
    if (received.result == os::Received::Result::kEnd) return 0;
    if (received.result == os::Received::Result::kNothing) continue;
    const absl::StatusOr<Request> request = ReadRequest(std::span(buffer).first(received.bytes));
    if (!request.ok()) return 4;
    Answer(socket, *request);
  }
}

}  // namespace
}  // namespace geminid::agent

int main(int argc, char** argv) {
  return geminid::agent::Main(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "");
}
