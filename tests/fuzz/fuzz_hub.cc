#include "tests/fuzz/fuzz_hub.h"

#include <sys/socket.h>

#include <utility>

#include "tests/fuzz/fuzz_target.h"

namespace geminid::fuzz {

using service::SessionHub;
using service::SessionPtr;

std::unique_ptr<SessionHub> MakeHub(service::SessionHubOptions options, service::Limits* limits,
                                    uint64_t host_bytes) {
  options.limits = limits;
  options.machine = os::ReadMachine(os::SystemNuma());
  options.arena_backing = memory::PageBacking::kSparse;
  options.engine.host_capacity_bytes = host_bytes;
  core::DeviceDescription device = {};
  device.kind = shm::DeviceKind::kHost;
  device.capacity_bytes = 64 * kMiB;
  device.granularity_bytes = shm::kSlotBytes;
  device.numa_node = shm::kNoNumaNode;
  options.engine.devices.push_back(device);
  absl::StatusOr<std::unique_ptr<SessionHub>> hub = SessionHub::Create(options);
  Require(hub.ok(), "a hub can be made");
  return *std::move(hub);
}

SessionPtr OpenSession(SessionHub* hub, base::UniqueFd* client) {
  int ends[2] = {-1, -1};
  Require(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0,
          "there are descriptors");
  *client = base::UniqueFd(ends[0]);
  core::SessionSpec spec;
  spec.tenant = "uid:1000";
  spec.job = "fuzz";
  spec.world_size = 1;
  spec.device = shm::kAnyDevice;
  absl::StatusOr<SessionPtr> session = hub->Open(spec, os::Peer(), base::UniqueFd(ends[1]));
  Require(session.ok(), "a session can be opened");
  return *std::move(session);
}

}  // namespace geminid::fuzz
