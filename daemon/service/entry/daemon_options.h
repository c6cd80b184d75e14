// A daemon's start options besides its settings: descriptors, programs and hooks.
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
  // A private daemon belongs to this process: once the process has ended and no session is
  // attached, the daemon ends too. If the daemon's output is in the file kStarterLog beside the
  // socket, its starter made the folder, and the daemon removes it. Signals of other senders, as to
  // all processes of a job, are ignored: the parent is to save first. 0: not private.
  pid_t parent_pid = 0;
  // Receives SIGTERM and SIGINT, which stop the daemon, and SIGHUP, for which it reads its settings
  // again; invalid: none. See os::CreateSignalFd.
  base::UniqueFd signal_fd;
  // Reads the settings again, for SIGHUP; empty: there is nothing to read.
  std::function<absl::StatusOr<config::Settings>()> read_settings;
  // The daemon ends with this terminal; invalid: with none.
  base::UniqueFd terminal;
  // The machine's NUMA nodes; must outlive the daemon.
  const os::Numa* numa = &os::SystemNuma();
  // Identifies clients; empty: as the settings say.
  IdentifyPeer identify;
  // The path of geminid-agent; empty: beside this program.
  std::string agent_program;
  agent::SupervisionOptions agent_supervision{};
  // Listeners at settings.socket and beside it, from a service manager that starts the daemon on
  // demand; both or neither. Invalid: the daemon makes them, and removes their files at its end.
  base::UniqueFd control_listener;
  base::UniqueFd attach_listener;
  // Opens the descriptor store, where the next daemon finds this one's sessions; called once the
  // socket's lock is held. Empty: sessions end with the daemon.
  std::function<absl::StatusOr<std::unique_ptr<holder::DescriptorStore>>()> open_store;
  // For tests: sparse arenas may be larger than the machine's memory, which then limits nothing.
  memory::PageBacking arena_backing = memory::PageBacking::kPopulated;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_DAEMON_OPTIONS_H_
