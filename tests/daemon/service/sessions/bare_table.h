// A session table with the objects that work on it and no hub, for tests of one part at a time.
#ifndef GEMINID_TESTS_DAEMON_SERVICE_SESSIONS_BARE_TABLE_H_
#define GEMINID_TESTS_DAEMON_SERVICE_SESSIONS_BARE_TABLE_H_

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/memfd.h"
#include "base/pages.h"
#include "daemon/service/sessions/now.h"
#include "daemon/service/sessions/session_plans.h"
#include "daemon/service/sessions/session_store.h"
#include "daemon/service/sessions/session_table.h"

namespace geminid::service {

// A store that only remembers the names.
class NamesStore final : public holder::DescriptorStore {
 public:
  absl::Status Put(const std::string& name, int) override {
    names.insert(name);
    return absl::OkStatus();
  }
  absl::Status Remove(const std::string& name) override {
    names.erase(name);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<holder::StoredDescriptor>> List() override {
    return std::vector<holder::StoredDescriptor>();
  }
  void Finish() override {}

  std::set<std::string> names;
};

class BareTable : public ::testing::Test {
 protected:
  static constexpr uint64_t kMiB = uint64_t{1} << 20;
  static constexpr uint32_t kRecords = 64;

  BareTable() : table_(Node(), {}, NewManifest()) {}

  static core::EngineOptions Node() {
    core::EngineOptions engine;
    engine.host_capacity_bytes = kMiB;
    engine.devices = {core::HostDevice(shm::DeviceIndex{0}, kMiB)};
    return engine;
  }
  core::Manifest NewManifest() {
    const uint64_t bytes = core::Manifest::BytesFor(kRecords);
    const uint64_t rounded = base::RoundUpToPage(bytes);
    memory_ = *base::Mapping::Map(*base::CreateSealedMemfd("manifest", rounded), rounded);
    return *core::Manifest::Create({memory_.data(), bytes}, 1);
  }
  SessionPtr Open() {
    core::SessionSpec spec;
    spec.tenant = "uid:1";
    spec.job = "job";
    int ends[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    client_end_ = base::UniqueFd(ends[0]);
    const SessionTable::Locked locked = table_.Lock();
    const shm::SessionId id = *locked.engine().OpenSession(spec, Now());
    SessionPtr session = *ClientSession::Create(id, 1, spec, *locked.engine().DeviceOf(id),
                                                os::Peer(), base::UniqueFd(ends[1]), &in_flight_);
    locked.sessions()[id] = session;
    return session;
  }
  uint64_t FreeBytes(core::Account account) {
    return table_.Lock().engine().ledger().Totals(account).free_bytes;
  }

  base::Mapping memory_;
  base::UniqueFd client_end_;
  Limits limits_{config::TenantShares{}};
  DescriptorsInFlight in_flight_{&limits_};
  NamesStore names_;
  SessionTable table_;
  SessionStore store_{&names_, &table_};
  SessionPlans plans_{kMiB, &limits_, &table_, &store_};
};

}  // namespace geminid::service

#endif  // GEMINID_TESTS_DAEMON_SERVICE_SESSIONS_BARE_TABLE_H_
