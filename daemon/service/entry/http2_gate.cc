#include "daemon/service/entry/http2_gate.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/system_error.h"
#include "daemon/os/event.h"
#include "daemon/service/sessions/session_hub.h"

namespace geminid::service {
namespace {

// Bounds a turn, so that other connections have theirs.
constexpr int kMovesPerTurn = 4;
// The kernel's buffer of one direction, besides ours.
constexpr int kSocketBytes = 65536;
// How often waiting connections are logged.
constexpr int64_t kTellNanoseconds = 10'000'000'000;
constexpr int64_t kLookNanoseconds = 1'000'000'000;
constexpr uint32_t kEdges = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;

// Returns how many bytes; -1: none now; 0: the other end has closed the socket, or it is broken.
ssize_t ReadSome(const base::UniqueFd& from, std::span<char> into) {
  const ssize_t got = base::RetryOnEintr(
      [&] { return ::recv(from.get(), into.data(), into.size(), MSG_DONTWAIT); });
  if (got < 0 && errno != EAGAIN) return 0;
  return got;
}

// How many bytes the socket takes now; nullopt: it is broken.
std::optional<size_t> WriteSome(const base::UniqueFd& to, std::span<const char> bytes) {
  const ssize_t sent = base::RetryOnEintr([&] {
    return ::send(to.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  });
  if (sent >= 0) return static_cast<size_t>(sent);
  return errno == EAGAIN ? std::optional<size_t>(0) : std::nullopt;
}

// Writes the waiting bytes; false: the socket is broken.
bool Flush(const base::UniqueFd& to, std::string* waiting) {
  if (waiting->empty()) return true;
  const std::optional<size_t> sent = WriteSome(to, *waiting);
  if (!sent.has_value()) return false;
  waiting->erase(0, *sent);
  if (waiting->empty()) std::string().swap(*waiting);  // an idle connection costs no buffer
  return true;
}

// Writes `bytes`, and leaves the rest in `waiting`, which is empty; false: the socket is broken.
bool Pass(const base::UniqueFd& to, std::span<const char> bytes, std::string* waiting) {
  const std::optional<size_t> sent = WriteSome(to, bytes);
  if (!sent.has_value()) return false;
  waiting->assign(bytes.begin() + static_cast<ptrdiff_t>(*sent), bytes.end());
  return true;
}

}  // namespace

struct Http2Gate::Connection {
  uint64_t id = 0;
  std::string tenant;
  std::shared_ptr<Http2Budget> budget;
  std::function<void()> on_closed;
  base::UniqueFd client;
  base::UniqueFd server;  // our end of gRPC's pair
  std::array<os::EventLoop::WatchId, 2> watches{};
  Http2Inspector inspector;
  core::TokenBucket pings{kPings, Now()};
  std::string to_server;
  std::string to_client;
};

Http2Gate::Http2Gate(os::EventLoop* loop, Limits* limits, TenantLog* log)
    : loop_(loop), limits_(limits), log_(log) {}
Http2Gate::~Http2Gate() { CloseAll(); }

absl::StatusOr<base::UniqueFd> Http2Gate::Admit(const std::string& tenant,
                                                const std::string& budget, base::UniqueFd client,
                                                std::function<void()> on_closed) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return base::SystemError(errno, "socketpair", "a connection");
  }
  base::UniqueFd grpcs(ends[0]);
  auto connection = std::make_unique<Connection>();
  connection->id = next_id_++;
  connection->tenant = tenant;
  connection->budget = BudgetOf(budget);
  connection->client = std::move(client);
  connection->server = base::UniqueFd(ends[1]);
  for (const int fd : {ends[0], ends[1], connection->client.get()}) {
    (void)::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSocketBytes, sizeof(kSocketBytes));
  }
  Connection* const raw = connection.get();
  connections_.emplace(raw->id, std::move(connection));
  const std::array<int, 2> watched = {raw->client.get(), raw->server.get()};
  for (size_t i = 0; i < watched.size(); ++i) {
    absl::StatusOr<os::EventLoop::WatchId> watch =
        loop_->Watch(watched[i], kEdges, [this, id = raw->id](uint32_t) { Pump(id); });
    if (!watch.ok()) {
      Close(raw->id);
      return watch.status();
    }
    raw->watches[i] = *watch;
  }
  raw->on_closed = std::move(on_closed);
  return grpcs;
}

core::Rate Http2Gate::Calls() const {
  return limits_->RateOf(config::kCallRate, config::kCallBurstSeconds);
}

std::shared_ptr<Http2Budget> Http2Gate::BudgetOf(const std::string& name) {
  if (budgets_.size() >= forget_at_) {
    std::erase_if(budgets_, [calls = Calls(), now = Now()](const auto& entry) {
      return entry.second.use_count() == 1 && entry.second->IsUnused(calls, now);
    });
    // Amortized: at least as many new budgets come before the next scan of all.
    forget_at_ = std::max<size_t>(64, 2 * budgets_.size());
  }
  std::shared_ptr<Http2Budget>& budget = budgets_[name];
  if (budget == nullptr) budget = std::make_shared<Http2Budget>();
  return budget;
}

Http2Gate::RelayResult Http2Gate::MoveToClient(Connection* connection) {
  std::array<char, kGateBytes> buffer;
  bool some = !connection->to_client.empty();
  if (!Flush(connection->client, &connection->to_client)) return RelayResult::kEnded;
  if (connection->to_client.empty()) {
    unread_.erase(connection->id);
    const ssize_t got = ReadSome(connection->server, buffer);
    if (got == 0) return RelayResult::kEnded;
    if (got < 0) return some ? RelayResult::kSome : RelayResult::kNothing;
    const std::span<const char> bytes = std::span(buffer).first(static_cast<size_t>(got));
    if (!Pass(connection->client, bytes, &connection->to_client)) return RelayResult::kEnded;
    some = true;
  }
  if (connection->to_client.empty()) return RelayResult::kSome;
  // The time runs from the first byte that the client did not take.
  unread_.try_emplace(connection->id, os::MonotonicNanoseconds() + kUnreadNanoseconds);
  return RelayResult::kNothing;
}

bool Http2Gate::IsDelayed(Connection* connection) {
  const int64_t left = connection->budget->NanosecondsLeft(Calls(), Now());
  if (left == 0) {
    later_.erase(connection->id);
    return false;
  }
  // All connections of the tenant look again, because the first of them may use up the budget.
  later_[connection->id] = os::MonotonicNanoseconds() + std::min(left, kLookNanoseconds);
  LogDelay(*connection);
  return true;
}

void Http2Gate::LogDelay(const Connection& connection) {
  limits_->Count(config::kCallRate.key, connection.tenant);
  const int64_t now = os::MonotonicNanoseconds();
  if (now < tell_again_at_) return;
  tell_again_at_ = now + kTellNanoseconds;
  log_->Write(connection.tenant, os::LogLevel::kWarning, "a client's bytes wait",
              {{"tenant", connection.tenant},
               {"error", "it begins, resets or asks for more than its calls take"}});
}

Http2Gate::RelayResult Http2Gate::MoveToServer(Connection* connection) {
  std::array<char, kGateBytes> buffer;
  if (!Flush(connection->server, &connection->to_server)) return RelayResult::kEnded;
  if (!connection->to_server.empty() || !connection->to_client.empty() || IsDelayed(connection)) {
    return RelayResult::kNothing;
  }
  const ssize_t got = ReadSome(connection->client, buffer);
  if (got == 0) return RelayResult::kEnded;
  if (got < 0) return RelayResult::kNothing;
  const std::span<const char> bytes = std::span(buffer).first(static_cast<size_t>(got));
  Http2Cost cost;
  absl::Status good = connection->inspector.Look(bytes, &cost);
  connection->budget->Charge(cost, Calls(), Now());
  if (cost.pings > 0 && !connection->pings.Take(Now(), cost.pings)) {
    good.Update(absl::ResourceExhaustedError(
        absl::StrCat("it pings more than ", kPings.per_second, " times a second")));
  }
  if (!good.ok()) {
    log_->Write(connection->tenant, os::LogLevel::kWarning, "connection closed",
                {{"tenant", connection->tenant}, {"error", std::string(good.message())}});
    return RelayResult::kEnded;
  }
  return Pass(connection->server, bytes, &connection->to_server) ? RelayResult::kSome
                                                                 : RelayResult::kEnded;
}

void Http2Gate::Pump(uint64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection* const connection = found->second.get();
  again_.erase(id);
  for (int i = 0; i < kMovesPerTurn; ++i) {
    const RelayResult out = MoveToClient(connection);
    const RelayResult in =
        out == RelayResult::kEnded ? RelayResult::kEnded : MoveToServer(connection);
    if (in == RelayResult::kEnded) return Close(id);
    if (out == RelayResult::kNothing && in == RelayResult::kNothing) return;
  }
  again_.insert(id);
}

void Http2Gate::Close(uint64_t id) {
  auto node = connections_.extract(id);
  if (node.empty()) return;
  for (const os::EventLoop::WatchId watch : node.mapped()->watches) {
    if (watch != 0) loop_->Unwatch(watch);
  }
  again_.erase(id);
  later_.erase(id);
  unread_.erase(id);
  if (node.mapped()->on_closed) node.mapped()->on_closed();
}

void Http2Gate::CloseAll() {
  while (!connections_.empty()) Close(connections_.begin()->first);
}

void Http2Gate::Expire(int64_t now_nanoseconds) {
  std::vector<uint64_t> due(again_.begin(), again_.end());
  for (const auto& [id, at] : later_) {
    if (at <= now_nanoseconds) due.push_back(id);
  }
  for (const uint64_t id : due) Pump(id);
  due.clear();
  for (const auto& [id, at] : unread_) {
    if (at <= now_nanoseconds) due.push_back(id);
  }
  for (const uint64_t id : due) {
    const std::string tenant = connections_.at(id)->tenant;
    log_->Write(tenant, os::LogLevel::kWarning, "connection closed",
                {{"tenant", tenant}, {"error", "it did not read its answers for a minute"}});
    Close(id);
  }
}

std::optional<int64_t> Http2Gate::NextDeadline() const {
  if (!again_.empty()) return 0;
  std::optional<int64_t> next;
  for (const std::map<uint64_t, int64_t>* deadlines : {&later_, &unread_}) {
    for (const auto& [id, at] : *deadlines) next = std::min(next.value_or(at), at);
  }
  return next;
}

}  // namespace geminid::service
