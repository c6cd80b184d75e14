// What one tenant may use of the control plane: each limit and its key in the configuration.
#ifndef GEMINID_DAEMON_CONFIG_TENANT_SHARES_H_
#define GEMINID_DAEMON_CONFIG_TENANT_SHARES_H_

#include <array>
#include <cstdint>

namespace geminid::v1 {
class Config;
}

namespace geminid::config {

struct TenantShares {
  uint32_t calls = 256;  // being sent, served or answered
  // A starting job of 256 ranks makes a few thousand calls; calls beyond the burst only wait.
  uint32_t calls_per_second = 500;
  uint32_t listings_per_second = 50;
  uint32_t long_calls = 0;     // at once; 0: as many as there are worker threads
  uint32_t connections = 512;  // each rank has one, and so does each geminictl
  uint32_t connections_per_second = 100;
  uint32_t attaches_per_second = 100;
  uint32_t handshakes = 64;            // connections that have not said hello yet
  uint32_t log_lines_per_second = 20;  // a flood writes about 4 KiB/s
  uint32_t descriptors_in_flight = 0;  // sent, not yet received; 0: 1/8 of the fd limit
  uint32_t waiting_jobs = 64;          // jobs not admitted yet
  uint32_t tenants = 256;              // all tenants connected to the control socket
};

// After a quiet time, a tenant may use so many seconds' worth of a rate at once.
inline constexpr double kCallBurstSeconds = 4;
inline constexpr double kConnectionBurstSeconds = 10;
inline constexpr double kAttachBurstSeconds = 10;  // a job of 512 ranks
inline constexpr double kLogBurstSeconds = 50;

struct ShareKey {
  const char* key;  // in the configuration and in messages; label `limit` of metrics
  uint32_t TenantShares::*value;
  uint32_t least;
  uint32_t most;
};

inline constexpr ShareKey kCalls = {"calls_per_tenant", &TenantShares::calls, 1, 65536};
inline constexpr ShareKey kCallRate = {"calls_per_second", &TenantShares::calls_per_second, 1,
                                       1'000'000};
inline constexpr ShareKey kListingRate = {"listings_per_second", &TenantShares::listings_per_second,
                                          1, 1'000'000};
inline constexpr ShareKey kLongCalls = {"long_calls_per_tenant", &TenantShares::long_calls, 0,
                                        1024};
inline constexpr ShareKey kConnections = {"connections_per_tenant", &TenantShares::connections, 1,
                                          65536};
inline constexpr ShareKey kConnectionRate = {"connections_per_second",
                                             &TenantShares::connections_per_second, 1, 1'000'000};
inline constexpr ShareKey kAttachRate = {"attaches_per_second", &TenantShares::attaches_per_second,
                                         1, 1'000'000};
inline constexpr ShareKey kHandshakes = {"handshakes_per_tenant", &TenantShares::handshakes, 1,
                                         4096};
inline constexpr ShareKey kLogRate = {"log_lines_per_second", &TenantShares::log_lines_per_second,
                                      1, 1'000'000};
inline constexpr ShareKey kDescriptors = {"descriptors_in_flight_per_tenant",
                                          &TenantShares::descriptors_in_flight, 0, 1'000'000};
inline constexpr ShareKey kWaitingJobs = {"waiting_jobs_per_tenant", &TenantShares::waiting_jobs, 1,
                                          65536};
inline constexpr ShareKey kTenants = {"tenants", &TenantShares::tenants, 1, 65536};

inline constexpr std::array<ShareKey, 12> kShareKeys = {
    kCalls,      kCallRate,   kListingRate, kLongCalls,   kConnections, kConnectionRate,
    kAttachRate, kHandshakes, kLogRate,     kDescriptors, kWaitingJobs, kTenants};

// Convert between the keys of the configuration and TenantShares.
TenantShares SharesOf(const v1::Config& config);
void SetShares(const TenantShares& shares, v1::Config* config);

}  // namespace geminid::config

#endif  // GEMINID_DAEMON_CONFIG_TENANT_SHARES_H_
