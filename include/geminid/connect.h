// Connects a rank to the other ranks of its job.
//
//   auto info = collectives::FromEnvironment();
//   auto comm = collectives::Connect(*info);
#ifndef GEMINID_CONNECT_H_
#define GEMINID_CONNECT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "geminid/communicator.h"
#include "geminid/export.h"
#include "geminid/rank_info.h"

namespace geminid::collectives {

enum class BackendChoice {
  // One rank: no peers. All ranks on one host: shm. Several hosts: shm within a host and TCP
  // between hosts, if ranks are numbered host by host and a host has several ranks; else TCP.
  kAuto,
  kShm,
  kTcp,
};

struct ConnectOptions {
  BackendChoice backend = BackendChoice::kAuto;
  // Two communicators of the same job and ranks need different names (or Duplicate()).
  std::string name = "world";
  absl::Duration timeout = kDefaultTimeout;           // of each operation
  absl::Duration connect_timeout = absl::Minutes(5);  // for all ranks to come
  // With TCP: numeric address of this rank's interface for data, to which other ranks connect;
  // empty: the one that reaches rank 0.
  std::string interface_address{};
};

// Blocks until all ranks of the job have called it, with the same options. Several hosts need
// MASTER_ADDR. A job id is needed only if one user runs two jobs with the same MASTER_ADDR and
// MASTER_PORT at once.
GEMINID_EXPORT absl::StatusOr<std::unique_ptr<Communicator>> Connect(
    const RankInfo& info, const ConnectOptions& options = {});

}  // namespace geminid::collectives

#endif  // GEMINID_CONNECT_H_
