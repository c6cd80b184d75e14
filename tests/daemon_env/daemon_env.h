// A daemon within the test's process, on a socket in a fresh temporary folder.
//
//   DaemonEnv env;
//   ASSERT_TRUE(env.Start().ok());
//   ... Connect(env.socket()) ...
//   env.Stop();   // or let it go out of scope
#ifndef GEMINID_TESTS_DAEMON_ENV_DAEMON_ENV_H_
#define GEMINID_TESTS_DAEMON_ENV_DAEMON_ENV_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/agent/supervision.h"
#include "daemon/config/tenant_by.h"
#include "daemon/config/tenant_quota.h"
#include "daemon/config/tenant_shares.h"
#include "daemon/holder/descriptor_store.h"
#include "daemon/os/numa.h"
#include "daemon/service/tenants/identity.h"
#include "tests/base/temporary_folder.h"

// A test that calls the daemon itself includes daemon/service/entry/daemon.h. Most tests do not,
// and need not wait for the compiler to read gRPC.
namespace geminid::service {
class Daemon;
}

namespace geminid::testing {

// Values as in a configuration file; empty texts keep the built-in value.
struct DaemonEnvOptions {
  std::string host_memory = "1GiB";
  std::string device_memory = "1GiB";
  std::string device{};  // instead of device_memory, as the flag: "host:0=1GiB,host:1=1GiB"
  std::string metrics_listen = "off";
  std::string keep_time{};
  std::string bytes_in_flight{};
  std::string link_bytes_in_flight{};
  std::string sharing_interval{};
  uint32_t sharing_ranks = 0;
  uint32_t tickets_in_flight = 0;  // 0: built-in
  std::string log_level = "error";
  std::vector<config::TenantQuota> quotas{};
  const os::Numa* numa = &os::SystemNuma();  // outlives the daemon
  bool sparse_arenas = false;                // arenas larger than this machine
  std::string agent_program{};               // empty: geminid-agent beside this program
  agent::SupervisionOptions agent_supervision{};
  config::TenantShares shares{};
  uint32_t sessions = 0;  // 0: built-in
  uint32_t chunks = 0;
  config::TenantBy tenant_by = config::TenantBy::kContainer;
  service::IdentifyPeer identify{};  // instead of tenant_by
  // Allows other users to use the socket; also opens the folder.
  bool for_everybody = false;
  // Opens the descriptor store for the next daemon.
  std::function<absl::StatusOr<std::unique_ptr<holder::DescriptorStore>>()> open_store{};
};

class DaemonEnv {
 public:
  DaemonEnv();
  ~DaemonEnv();

  // After Stop it may be started again, on the same socket.
  absl::Status Start(const DaemonEnvOptions& options = {});
  void Stop();

  // The path of the gRPC socket, the same for the life of this object.
  std::string socket() const { return folder_.path() + "/geminid.sock"; }
  // The address of that socket for gRPC.
  std::string address() const;
  std::string metrics_address() const;
  // The metrics page as a scrape would return it now.
  std::string MetricsPage();
  service::Daemon& daemon() { return *daemon_; }

 private:
  base::TemporaryFolder folder_;
  std::unique_ptr<service::Daemon> daemon_;
  std::thread thread_;
};

}  // namespace geminid::testing

#endif  // GEMINID_TESTS_DAEMON_ENV_DAEMON_ENV_H_
