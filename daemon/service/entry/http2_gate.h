// The bytes between clients and gRPC.
//
// gRPC reads whatever comes, as fast as it comes, and keeps answers for clients that do not read:
// one connection could take gigabytes without having shown a token. So gRPC gets one end of a pair
// of sockets, and the gate passes bytes on. The gate closes connections with frames that no client
// of gRPC sends, and holds back frames beyond their rate. It reads nothing from a client that does
// not read.
#ifndef GEMINID_DAEMON_SERVICE_ENTRY_HTTP2_GATE_H_
#define GEMINID_DAEMON_SERVICE_ENTRY_HTTP2_GATE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "daemon/os/event_loop.h"
#include "daemon/service/entry/http2_budget.h"
#include "daemon/service/entry/http2_inspector.h"
#include "daemon/service/tenants/limits.h"
#include "daemon/service/tenants/tenant_log.h"

namespace geminid::service {

// What waits in each direction of a connection, at most.
inline constexpr size_t kGateBytes = 16384;
// For whoever does not read what waits for it.
inline constexpr int64_t kUnreadNanoseconds = 60'000'000'000;
// Of one connection, which the gate closes beyond that rate. gRPC's clients send ten pings a second
// at most. For each ping too many gRPC makes an error and a GOAWAY, which wait until they are read.
inline constexpr core::Rate kPings = {.per_second = 20, .burst = 40};
// Descriptors of a connection: its own, and both ends of the pair.
inline constexpr int kDescriptorsPerConnection = 3;

// Belongs to its event loop's thread.
class Http2Gate {
 public:
  // All outlive it.
  Http2Gate(os::EventLoop* loop, Limits* limits, TenantLog* log);
  ~Http2Gate();

  // gRPC's end of a new pair, whose other end is `client`'s. Connections with the same `budget`, a
  // name, share one. `on_closed` is called when the connection has ended, by either end.
  absl::StatusOr<base::UniqueFd> Admit(const std::string& tenant, const std::string& budget,
                                       base::UniqueFd client, std::function<void()> on_closed);

  // Goes on with connections whose turn has come, and closes those that are not read.
  void Expire(int64_t now_nanoseconds);
  // When Expire has something to do next.
  std::optional<int64_t> NextDeadline() const;
  void CloseAll();
  size_t connections() const { return connections_.size(); }

 private:
  struct Connection;
  enum class Moved { kNothing, kSome, kEnded };

  void Pump(uint64_t id);
  Moved MoveToClient(Connection* connection);
  Moved MoveToServer(Connection* connection);
  // Whether the tenant must be waited for.
  bool IsDelayed(Connection* connection);
  void TellThatItWaits(const Connection& connection);
  void Close(uint64_t id);
  std::shared_ptr<Http2Budget> BudgetOf(const std::string& name);
  core::Rate Calls() const;

  os::EventLoop* const loop_;
  Limits* const limits_;
  TenantLog* const log_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::unique_ptr<Connection>> connections_;
  std::map<std::string, std::shared_ptr<Http2Budget>> budgets_;
  size_t forget_at_ = 64;               // budgets: then it pays to look
  std::set<uint64_t> again_;            // there is more to move
  std::map<uint64_t, int64_t> later_;   // when it may be read again
  std::map<uint64_t, int64_t> unread_;  // when it is given up
  int64_t tell_again_at_ = 0;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_HTTP2_GATE_H_
