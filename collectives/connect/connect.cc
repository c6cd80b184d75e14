#include "geminid/connect.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "collectives/hierarchical/hierarchical_communicator.h"
#include "collectives/shm/shm_communicator.h"
#include "collectives/tcp/tcp_communicator.h"

namespace geminid::collectives {
namespace {

constexpr char kLoopback[] = "127.0.0.1";
constexpr char kSilenceVariable[] = "GEMINID_SILENCE";

absl::StatusOr<std::unique_ptr<Communicator>> ConnectByShm(const RankInfo& info,
                                                           const ConnectOptions& options) {
  const std::string address = info.master_address.empty() ? kLoopback : info.master_address;
  const std::string name =
      absl::StrCat(info.job, "/", address, ":", info.master_port, "/", options.name);
  return ConnectShm(name, info.rank, info.world_size,
                    {.timeout = options.timeout, .connect_timeout = options.connect_timeout});
}

// An environment variable, because a program's user knows the network and its author does not.
absl::StatusOr<absl::Duration> Silence() {
  constexpr absl::Duration kLongest = absl::Hours(1);
  const char* const text = std::getenv(kSilenceVariable);
  if (text == nullptr || *text == '\0') return kDefaultSilence;
  absl::Duration silence;
  if (absl::ParseDuration(text, &silence) && silence >= kShortestSilence &&
      (silence <= kLongest || silence == absl::InfiniteDuration())) {
    return silence;
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s=\"%s\" is not a duration from %s to %s, such as 5s, nor inf", kSilenceVariable, text,
      absl::FormatDuration(kShortestSilence), absl::FormatDuration(kLongest)));
}

absl::StatusOr<TcpOptions> NetworkOf(const RankInfo& info, const ConnectOptions& options) {
  if (info.master_address.empty() && !info.OnOneHost()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d ranks on several hosts need MASTER_ADDR, the address of rank 0's host, on all of them",
        info.world_size));
  }
  TcpOptions tcp;
  tcp.host = info.master_address.empty() ? kLoopback : info.master_address;
  tcp.port = info.master_port;
  tcp.job = absl::StrCat(info.job, "/", options.name);
  tcp.timeout = options.timeout;
  tcp.connect_timeout = options.connect_timeout;
  tcp.interface_address = options.interface_address;
  GEMINID_ASSIGN_OR_RETURN(tcp.silence, Silence());
  return tcp;
}

absl::StatusOr<std::unique_ptr<Communicator>> ConnectByTcp(const RankInfo& info,
                                                           const ConnectOptions& options) {
  GEMINID_ASSIGN_OR_RETURN(TcpOptions tcp, NetworkOf(info, options));
  return ConnectTcp(info.rank, info.world_size, std::move(tcp));
}

absl::StatusOr<std::unique_ptr<Communicator>> ConnectOverHosts(const RankInfo& info,
                                                               const ConnectOptions& options) {
  HierarchicalOptions hierarchical;
  GEMINID_ASSIGN_OR_RETURN(hierarchical.network, NetworkOf(info, options));
  return ConnectHierarchical(info.rank, info.world_size, std::move(hierarchical));
}

absl::Status CheckTimeout(const char* name, absl::Duration timeout) {
  if (timeout > absl::ZeroDuration()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", absl::FormatDuration(timeout), "; it must be above 0"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> Connect(const RankInfo& info,
                                                      const ConnectOptions& options) {
  GEMINID_RETURN_IF_ERROR(CheckTimeout("timeout", options.timeout));
  GEMINID_RETURN_IF_ERROR(CheckTimeout("connect_timeout", options.connect_timeout));
  switch (options.backend) {
    case BackendChoice::kAuto:
      if (info.world_size == 1) {
        auto self = MakeSelfCommunicator();
        self->SetTimeout(options.timeout);
        return self;
      }
      return info.OnOneHost() ? ConnectByShm(info, options) : ConnectOverHosts(info, options);
    case BackendChoice::kShm:
      return ConnectByShm(info, options);
    case BackendChoice::kTcp:
      return ConnectByTcp(info, options);
  }
  return absl::InvalidArgumentError("unknown backend of the collectives");
}

}  // namespace geminid::collectives
