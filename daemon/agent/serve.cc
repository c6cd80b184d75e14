#include "daemon/agent/serve.h"

#include <poll.h>

#include <array>
#include <iostream>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/exit_status.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "daemon/agent/gpu_faults.h"
#include "daemon/agent/gpu_list.h"
#include "daemon/agent/gpu_memory.h"
#include "daemon/os/unix_socket.h"
#include "gpu/driver.h"

namespace geminid::agent {
namespace {

absl::Status Say(const base::UniqueFd& socket, const Reply& reply, std::span<const int> fds = {}) {
  return os::SendMessage(socket, std::as_bytes(std::span(&reply, 1)), fds);
}

absl::Status SayDone(const base::UniqueFd& socket, uint64_t id, ReplyType type,
                     const absl::Status& status) {
  return Say(socket, status.ok() ? MakeReply(type, id) : MakeFailure(id, status));
}

absl::Status AnswerCreate(const base::UniqueFd& socket, const Request& request, GpuMemory* memory,
                          absl::Status* result) {
  absl::StatusOr<GpuMemory::CreatedSlab> made = memory->Create(request.bytes);
  *result = made.status();
  if (!made.ok()) return Say(socket, MakeFailure(request.id, made.status()));
  Reply reply = MakeReply(ReplyType::kCreated, request.id);
  reply.slab = made->slab;
  const std::array<int, 1> fds = {made->fd.get()};
  return Say(socket, reply, fds);  // and this process's descriptor closes
}

// The GPU of this process.
struct ServedGpu {
  GpuMemory memory;
  GpuFaults faults;
};

absl::Status AnswerHealth(const base::UniqueFd& socket, const Request& request, ServedGpu* gpu,
                          absl::Status* result) {
  absl::StatusOr<Health> health = gpu->memory.ReadHealth();
  *result = health.status();
  if (!health.ok()) return Say(socket, MakeFailure(request.id, health.status()));
  Reply reply = MakeReply(ReplyType::kHealthy, request.id);
  health->faults = gpu->faults.Read();
  reply.health = *health;
  return Say(socket, reply);
}

// Returns an error of the socket; the GPU's status is in *result.
absl::Status Answer(const base::UniqueFd& socket, const Request& request, ServedGpu* gpu,
                    absl::Status* result) {
  switch (request.type) {
    case RequestType::kCreate:
      return AnswerCreate(socket, request, &gpu->memory, result);
    case RequestType::kScrub:
      *result = gpu->memory.Scrub(request.slab);
      return SayDone(socket, request.id, ReplyType::kScrubbed, *result);
    case RequestType::kRelease:
      *result = gpu->memory.Release(request.slab);
      return SayDone(socket, request.id, ReplyType::kReleased, *result);
    case RequestType::kHealth:
      return AnswerHealth(socket, request, gpu, result);
    case RequestType::kNone:
      break;
  }
  return absl::InternalError("a request that was checked has no type");
}

// Whether the process is of no use any more. Its end returns the slabs that it could not release.
bool EndsTheAgent(const Request& request, const absl::Status& result) {
  return absl::IsDataLoss(result) || (request.type == RequestType::kRelease && !result.ok()) ||
         (request.type == RequestType::kHealth && !result.ok());
}

absl::Status ServeRequests(const base::UniqueFd& socket, ServedGpu* gpu) {
  std::array<std::byte, sizeof(Request)> buffer;
  for (;;) {
    pollfd entry = {.fd = socket.get(), .events = POLLIN, .revents = 0};
    if (base::RetryOnEintr([&] { return ::poll(&entry, 1, -1); }) < 0) {
      return base::SystemError(errno, "poll", "the daemon's socket");
    }
    const os::Received received = os::ReceiveMessage(socket, buffer);
    if (received.result == os::Received::Result::kNothing) continue;
    if (received.result == os::Received::Result::kEnd) return absl::OkStatus();
    if (received.truncated || received.had_fds) {
      return absl::InvalidArgumentError("the daemon sent more than a request");
    }
    const absl::StatusOr<Request> request = ReadRequest(std::span(buffer).first(received.bytes));
    if (!request.ok()) return request.status();
    absl::Status result;
    GEMINID_RETURN_IF_ERROR(Answer(socket, *request, gpu, &result));
    if (EndsTheAgent(*request, result)) return result;
  }
}

absl::Status OpenAndServe(const base::UniqueFd& socket, const std::string& uuid) {
  GEMINID_ASSIGN_OR_RETURN(GpuMemory memory, GpuMemory::Open(uuid));
  Reply hello = MakeReply(ReplyType::kHello, 0);
  hello.gpu = memory.facts();
  GEMINID_ASSIGN_OR_RETURN(const gpu::NvmlApi* nvml, gpu::LoadNvml());
  ServedGpu served = {.memory = std::move(memory), .faults = GpuFaults(nvml, uuid)};
  GEMINID_RETURN_IF_ERROR(Say(socket, hello));
  return ServeRequests(socket, &served);
}

absl::StatusOr<std::vector<GpuFacts>> FindAll() {
  GEMINID_ASSIGN_OR_RETURN(const gpu::NvmlApi* nvml, gpu::LoadNvml());
  std::vector<absl::Status> silent;
  GEMINID_ASSIGN_OR_RETURN(std::vector<GpuFacts> gpus, ListGpus(*nvml, &silent));
  for (const absl::Status& status : silent) {
    std::cerr << "geminid-agent: a GPU is left out: " << status.message() << '\n';
  }
  return gpus;
}

}  // namespace

absl::Status Serve(const base::UniqueFd& socket, const std::string& uuid) {
  absl::Status status = OpenAndServe(socket, uuid);
  if (!status.ok()) (void)Say(socket, MakeFailure(0, status));
  return status;
}

absl::Status Probe(const base::UniqueFd& socket) {
  const absl::StatusOr<std::vector<GpuFacts>> gpus = FindAll();
  if (!gpus.ok()) {
    (void)Say(socket, MakeFailure(0, gpus.status()));
    return gpus.status();
  }
  for (const GpuFacts& gpu : *gpus) {
    Reply reply = MakeReply(ReplyType::kFound, 0);
    reply.gpu = gpu;
    GEMINID_RETURN_IF_ERROR(Say(socket, reply));
  }
  return Say(socket, MakeReply(ReplyType::kNoMore, 0));
}

absl::Status PrintGpus() {
  GEMINID_ASSIGN_OR_RETURN(const std::vector<GpuFacts> gpus, FindAll());
  for (const GpuFacts& gpu : gpus) {
    std::cout << gpu.uuid << ' ' << gpu.pci << ' ' << base::FormatBytes(gpu.total_bytes) << ", "
              << base::FormatBytes(gpu.free_bytes) << " free, ";
    if (gpu.numa_node != shm::kNoNumaNode) std::cout << "NUMA node " << gpu.numa_node << ", ";
    std::cout << gpu.name << '\n';
  }
  if (gpus.empty()) std::cout << "no GPU\n";
  return base::FinishOutput(std::cout);
}

}  // namespace geminid::agent
