// Decides which copy may start now. Pure: it is handed time and returns grants.
//
// Per session and direction a bounded number of tickets and bytes is in flight; other requests wait
// here. Small copies may exceed the number, so that the link has work while the daemon hears of the
// last completion. The request of the lowest level is next; within a level the one whose deadline is the
// fewest moments away; then the oldest. The level is the priority, less one for each multiple of
// `ageing` since the request came. It has no floor, so every request is granted in time, whatever
// others ask for. A smaller request never bypasses the best one. Requests of one session with the
// same destination are granted in order.
//
// Each device has a link of its own in each direction. If a shared link limit is set, it is divided
// between the device's sessions by weight. The session with the fewest granted bytes per weight is
// next (start-time fair queueing, Goyal et al., 1996).
//
// A ticket counts against the shared link for `link_patience` at most. After that it is late: it
// counts against its own session alone, whether its client is slow, stopped or never completes it.
// The sessions of a tenant with a late ticket are limited to their parts of the link, even if
// others leave theirs unused. That ends when `part_time` has passed without a late ticket.
//
// Every call takes time logarithmic in the sessions and requests, so a full queue or a node full of
// sessions slows nobody else's requests down. For that, the order of requests never changes with
// time. All waiting requests age alike, so the priority plus the multiple of `ageing` at which a
// request came orders them for good.
#ifndef GEMINID_DAEMON_CORE_TRANSFERS_TRANSFER_SCHEDULER_H_
#define GEMINID_DAEMON_CORE_TRANSFERS_TRANSFER_SCHEDULER_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/basics/ids.h"
#include "daemon/core/basics/time.h"
#include "daemon/core/basics/time_histogram.h"
#include "proto/shm/session_layout.h"

namespace geminid::core {

inline constexpr int kDirections = 2;
inline constexpr int kCauses = 5;  // TransferCause, kNone included
constexpr int Index(Direction direction) { return direction == Direction::kHostToDevice ? 0 : 1; }

struct TransferLimits {
  // Per session and direction. Both directions share kMaxTicketsInFlight completion words, so a
  // larger value is lowered to half of those.
  uint32_t tickets_in_flight = 2;
  // More tickets are granted while all in flight have at most so many bytes together. A link of 25
  // GB/s copies the default in 170 us, which is about what a ticket and its completion take.
  uint64_t small_bytes_in_flight = uint64_t{4} << 20;
  // A single larger transfer is granted when nothing else is in flight.
  uint64_t bytes_in_flight = uint64_t{64} << 20;
  // Over all sessions of a device, per direction; 0: no shared limit.
  uint64_t link_bytes_in_flight = 0;
  // A link of today copies the bytes that may be in flight in milliseconds.
  Duration link_patience = Duration::Milliseconds(100);
  Duration part_time = Duration::Seconds(10);
  uint32_t queued_per_session = 4096;
  Duration ageing = Duration::Milliseconds(10);
  // A ticket without completion for this long marks its session slow. The ticket stays valid.
  Duration ticket_timeout = Duration::Seconds(5);
};

struct TransferRequest {
  uint64_t request_id = 0;
  Direction direction = Direction::kNone;
  uint64_t bytes = 0;
  Priority priority = Priority::kNormal;
  TransferCause cause = TransferCause::kNone;
  uint16_t deadline_moment = kNoDeadline;
  ChunkId source{};
  ChunkId destination{};
  uint64_t source_offset = 0;
  uint64_t destination_offset = 0;
  uint16_t flags = 0;
  // For the engine: which content a write-back saves, and the place in the session's books.
  uint64_t dirty_epoch = 0;
  uint32_t place = 0;
};

struct Ticket {
  SessionId session{};
  TicketId id{};
  uint16_t completion_index = 0;
  Time granted_at;
  bool overdue = false;
  bool late = false;       // in flight for `link_patience`
  bool fills_link = true;  // counts against the shared link; false: against its own session alone
  TransferRequest request;
};

struct TransferCount {
  uint64_t bytes = 0;
  uint64_t transfers = 0;
};

// Completed transfers by direction and cause.
struct TransferTotals {
  std::array<std::array<TransferCount, kCauses>, kDirections> counts{};
  TransferCount& At(Direction direction, TransferCause cause) {
    return counts[Index(direction)][static_cast<int>(cause)];
  }
  const TransferCount& At(Direction direction, TransferCause cause) const {
    return counts[Index(direction)][static_cast<int>(cause)];
  }
};

struct InFlight {
  uint32_t tickets = 0;
  uint64_t bytes = 0;
};

// One direction of a device's link: its load now, and its times since the daemon's start.
struct LinkReading {
  InFlight flight;
  uint64_t queued = 0;
  uint64_t queued_bytes = 0;
  Duration busy;         // while at least one copy was under way
  TimeHistogram waits;   // from the request to its ticket
  TimeHistogram copies;  // from the ticket to its completion
};

// Not thread-safe.
class TransferScheduler {
 public:
  explicit TransferScheduler(const TransferLimits& limits, uint32_t devices = 1);
  ~TransferScheduler();

  // `weight` > 0: the session's part of the device's shared link, beside the weights of the others.
  void AddSession(SessionId session, DeviceIndex device, double weight,
                  const std::string& tenant = "");
  // Both apply to later grants.
  void SetLinkLimit(uint64_t bytes_in_flight) { limits_.link_bytes_in_flight = bytes_in_flight; }
  void SetWeight(SessionId session, double weight);
  // Forgets everything queued and in flight; returns it so that the caller can undo its part.
  std::vector<TransferRequest> RemoveSession(SessionId session, Time now);

  // The moment deadlines are counted from.
  void SetMoment(SessionId session, uint16_t moment);

  // False when the session's queue is full (or there is no such session): nothing was queued.
  bool Enqueue(SessionId session, const TransferRequest& request, Time now);

  // Numbers tickets from `first` on: an earlier daemon's are below it.
  void NumberTicketsFrom(uint64_t first) { next_ticket_ = first; }
  // Puts a ticket of an earlier daemon back in flight. False when its session is not there, or has
  // a ticket with that completion word.
  bool Restore(const Ticket& ticket, Time now);

  // Grants every transfer that may start now. The tickets are in the order to be sent.
  std::vector<Ticket> Grant(Time now);

  // Null when no such ticket is in flight. Valid until the next call that is not const.
  const Ticket* Find(SessionId session, TicketId ticket) const;
  // Ends a ticket: its credits return and it counts as transferred. False when there is none.
  bool Complete(SessionId session, TicketId ticket, Time now);

  // Marks tickets over their time; returns how many were newly marked as overdue.
  uint64_t MarkOverdue(Time now);
  // When the next ticket becomes overdue, or stops counting against a link that a session waits
  // for; nullopt: no ticket is in flight.
  std::optional<Time> NextTimeout() const;
  bool IsSlow(SessionId session) const;  // has an overdue ticket in flight

  InFlight FlightOf(SessionId session, Direction direction) const;
  InFlight FlightOf(DeviceIndex device, Direction direction) const;
  uint64_t QueuedCount(SessionId session) const;
  TransferTotals TotalsOf(SessionId session) const;
  // Over all sessions of the device, those that have ended included.
  TransferTotals TotalsOf(DeviceIndex device) const;
  uint64_t OverdueTickets(DeviceIndex device) const;
  // Zeros without such a device.
  LinkReading ReadLink(DeviceIndex device, Direction direction, Time now) const;
  const TransferLimits& limits() const { return limits_; }

 private:
  struct Waiting;
  struct Head;
  struct Lane;
  struct Session;
  // In flight and not overdue, the oldest first.
  using Running = std::map<std::pair<Time, TicketId>, SessionId>;
  struct Tenant {
    uint32_t sessions = 0;
    Time in_parts_until;  // its sessions are held to their parts of the links
  };
  // Bytes granted per weight so far: the least is next.
  using GrantOrder = std::pair<double, SessionId>;

  // The link of one device, in both directions.
  struct Link {
    // Begin and End also measure `busy`, the time in which at least one ticket is in flight.
    struct Line {
      LinkReading reading;
      InFlight filled;  // the part of reading.flight that fills the shared link
      Time busy_since;  // while a copy is under way
      void Begin(const Ticket& ticket, Time now);
      void End(const Ticket& ticket, Time now);
      void Unfill(const Ticket& ticket);
    };
    std::array<Line, kDirections> lines{};
    std::array<double, kDirections> virtual_time{};
    // The sessions whose own limits allow another ticket.
    std::array<std::set<GrantOrder>, kDirections> ready{};
    TransferTotals totals;
    uint64_t overdue_tickets = 0;
    double weight = 0;  // of all its sessions
  };

  Session* FindSession(SessionId session) const;
  const Link& LinkOf(DeviceIndex device) const { return links_[shm::Value(device)]; }
  static bool Fits(const InFlight& flight, uint64_t bytes, uint64_t limit_bytes);
  bool HasTicketFor(const InFlight& flight, uint64_t bytes) const;
  // Null: nothing waits in that direction.
  static const Waiting* Best(const Session& session, Direction direction);
  Head HeadOf(const Waiting& waiting) const;
  // Updates the session's entry in `ready`; call it after any change that decides this.
  void UpdateTurn(SessionId id, Session* session, Direction direction);
  bool IsHeldToItsPart(const Session& session) const;
  bool FitsItsPart(const Session& session, Direction direction, uint64_t bytes) const;
  // Marks tickets older than `link_patience`. True: some link has room that it had not before.
  bool MarkLate(Time now);
  void HoldToParts(Tenant* tenant);
  void GrantOnLink(Link* link, Direction direction, std::vector<Ticket>* granted);
  Ticket Start(SessionId id, Session* session, const Waiting& chosen);

  TransferLimits limits_;
  std::map<SessionId, std::unique_ptr<Session>> sessions_;
  std::vector<Link> links_;                // by device
  std::map<std::string, Tenant> tenants_;  // with sessions, or held to parts
  Running running_;
  Running::key_type late_until_;  // tickets of running_ up to this one are late
  bool link_is_full_ = false;     // a session waits until others have completed
  Time now_;                      // the latest that was handed in
  uint64_t next_arrival_ = 0;
  // Counts over all sessions, so that even a reopened session never sees a number twice.
  uint64_t next_ticket_ = 1;
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_TRANSFERS_TRANSFER_SCHEDULER_H_
