// What a daemon is started with beside its settings: what its process was given.
#ifndef GEMINID_DAEMON_SERVICE_ENTRY_DAEMON_OPTIONS_H_
#define GEMINID_DAEMON_SERVICE_ENTRY_DAEMON_OPTIONS_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "daemon/config/settings.h"
#include "daemon/gpus/gpus.h"
#include "daemon/holder/descriptor_store.h"
#include "daemon/memory/host_pool.h"
#include "daemon/os/numa.h"
#include "daemon/service/tenants/identity.h"

namespace geminid::service {

struct DaemonOptions {
  // A private daemon belongs to this process: once it has ended and no session is attached, the
  // daemon ends too. If its output is in the file kStarterLog beside the socket, the folder is its
  // starter's, and is removed. Signals that others send it, as to every process of a job that ends,
  // are nothing to it: the parent is to save first. 0: not private.
  pid_t parent_pid = 0;
  // Receives SIGTERM and SIGINT, which stop the daemon, and SIGHUP, for which it reads its settings
  // again; invalid: none. See os::CreateSignalFd.
  base::UniqueFd signal_fd;
  // Reads them; empty: there is nothing to read again.
  std::function<absl::StatusOr<config::Settings>()> read_settings;
  // The daemon ends with this terminal; invalid: with none.
  base::UniqueFd terminal;
  // What the daemon takes for this machine's NUMA nodes; outlives it.
  const os::Numa* numa = &os::SystemNuma();
  // Who a client is; empty: as the settings say.
  Identify identify;
  // geminid-agent; empty: beside this program.
  std::string agent_program;
  agent::SupervisionOptions agent_supervision{};
  // At settings.socket and beside it, from whoever starts the daemon when somebody connects; both
  // or neither. Invalid: the daemon makes them, and removes their files when it ends.
  base::UniqueFd control_listener;
  base::UniqueFd attach_listener;
  // Where this daemon leaves what its successor needs; called once the socket's lock is held.
  // Empty: sessions end with the daemon.
  std::function<absl::StatusOr<std::unique_ptr<holder::DescriptorStore>>()> open_store;
  // Sparse arenas may be larger than the machine, whose caps then mean nothing: for tests.
  memory::Backing arena_backing = memory::Backing::kPopulated;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_DAEMON_OPTIONS_H_
