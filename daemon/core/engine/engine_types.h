// What goes into an Engine and what comes out of it: plain values.
#ifndef GEMINID_DAEMON_CORE_ENGINE_ENGINE_TYPES_H_
#define GEMINID_DAEMON_CORE_ENGINE_ENGINE_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/core/accounts/account.h"
#include "daemon/core/accounts/quota.h"
#include "daemon/core/basics/ids.h"
#include "daemon/core/basics/time.h"
#include "daemon/core/basics/time_histogram.h"
#include "daemon/core/jobs/job_queue.h"
#include "daemon/core/records/session_books.h"
#include "daemon/core/transfers/transfer_scheduler.h"
#include "proto/shm/attach_messages.h"
#include "proto/shm/session_layout.h"

namespace geminid::core {

// Homes begin at multiples of this within their pool.
inline constexpr uint64_t kHomeAlignmentBytes = 64;
inline constexpr size_t kMaxChunkNameBytes = 128;

// The shared tables of the sessions, as the shell maps them and tests fake them. Accesses are
// sequentially consistent: eviction relies on it (proto/shm/lease.h).
class Tables {
 public:
  virtual ~Tables() = default;
  virtual void PublishState(SessionId session, ChunkId chunk, uint64_t word) = 0;
  virtual uint64_t ReadLease(SessionId session, ChunkId chunk) = 0;
  virtual uint64_t ReadCompletion(SessionId session, uint16_t index) = 0;
  // Publishes whether the session is asked to give its arena back.
  virtual void PublishYield(SessionId session, bool asked) = 0;
};

struct EngineOptions {
  uint64_t host_capacity_bytes = 0;
  std::vector<DeviceDescription> devices;  // by index; at least one
  std::vector<TenantLimits> tenants;
  TransferLimits transfers;
  uint32_t max_sessions = 512;  // of all tenants, retained ones included: see SharedLimit
  // How long the memory of a session that died with DeathPolicy::kKeep is retained.
  Duration keep_time = Duration::Seconds(600);
  JobQueueOptions jobs{};
  // The size of the reserved pages in which pools lie; 0: in none. A pool has whole pages only, so
  // one of kHugePagesOfPool or more is rounded up.
  uint64_t huge_page_bytes = 0;
};

// From this many huge pages on, the rest of the last page is below 1 % of the pool.
inline constexpr uint64_t kHugePagesOfPool = 128;

// Limits that may change while sessions are attached.
struct RunningLimits {
  std::vector<TenantLimits> tenants;
  Duration keep_time;
  JobQueueOptions jobs;
  uint64_t link_bytes_in_flight = 0;
};

// A session's state that an earlier daemon left, beside its records in the manifest.
struct InheritedSession {
  explicit InheritedSession(SessionBooks its_books) : books(std::move(its_books)) {}

  SessionBooks books;
  std::map<PoolId, uint64_t> pools;   // bytes of each existing pool
  uint64_t arena_bytes = 0;           // of the existing slabs
  std::vector<uint64_t> state_words;  // as they were published, by chunk number
  // Its ring has a request that the earlier daemon may have carried out, wholly or in part.
  bool request_in_doubt = false;
};

struct ChunkSpec {
  std::string name;
  ChunkKind kind = ChunkKind::kNone;
  uint64_t bytes = 0;
  bool has_home = true;
};

struct Allocation {
  std::vector<ChunkId> chunks;         // in the order asked for
  std::vector<uint64_t> home_offsets;  // within the pool; 0 for chunks without a home
  PoolId pool = kNoPool;               // kNoPool: no chunk has a home
  uint64_t pool_bytes = 0;             // exact, whole pages
};

// A charge for memory that belongs to no session: it is being made or destroyed.
enum class ChargeId : uint64_t {};

// Memory to be made for a session.
struct Promise {
  ChargeId charge{};
  PoolId pool = kNoPool;      // of an allocation with homes
  uint64_t bytes = 0;         // exact, whole pages; 0: there is nothing to make
  bool is_elsewhere = false;  // the client has it already: the pool stays empty
};

// Memory the shell must give back to the system.
struct Releases {
  struct OfPool {
    SessionId session{};
    PoolId pool = kNoPool;
  };
  std::vector<OfPool> pools;
  std::vector<SessionId> arenas;    // the arena of this session
  std::vector<SessionId> sessions;  // ended for good: its segments and books too
  std::vector<ChargeId> charges;    // of all the above: GiveBack each once its memory is destroyed
  std::vector<SessionId> closing;   // closed in part: for ContinueClose
};

// One response for a session's ring. `error` is for the daemon's log: empty unless kError.
struct Outgoing {
  SessionId session{};
  shm::Response response{};
  std::string error{};
};

enum class CloseReason {
  kDetached,       // the client detached: its memory is freed whatever its death policy says
  kDied,           // its death policy decides
  kProtocolError,  // broke the wire contract: its death policy decides
};

// When each chunk is used within an iteration of `moments` moments, from the session's plan.
struct NextUseTable {
  struct Uses {
    ChunkId chunk{};
    std::vector<uint32_t> moments;
  };
  uint32_t moments = 0;
  std::vector<Uses> chunks;  // a chunk that is not named is never used
};

// A plan as the engine stores it.
struct PlanUses {
  uint32_t moments = 0;
  std::map<ChunkId, std::vector<uint32_t>> uses;  // in order
};
// OUT_OF_RANGE for a use beyond the plan's moments. Slow: call it without the engine's mutex.
absl::StatusOr<PlanUses> SortUses(const NextUseTable& table);

struct EngineCounters {
  uint64_t requests = 0;
  uint64_t request_errors = 0;
  uint64_t drops = 0;      // device copies that their client gave up
  uint64_t evictions = 0;  // device copies that had to make room for others
  uint64_t evictions_refused_by_lease = 0;
  uint64_t sessions_opened = 0;
  uint64_t sessions_kept = 0;
  uint64_t sessions_resumed = 0;  // of those retained, by a new client
  TimeHistogram successor_waits;  // from the client's death to its replacement
  uint64_t sessions_expired = 0;
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_ENGINE_ENGINE_TYPES_H_
