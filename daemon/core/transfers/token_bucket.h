// Limits how often each tenant may do something.
#ifndef GEMINID_DAEMON_CORE_TRANSFERS_TOKEN_BUCKET_H_
#define GEMINID_DAEMON_CORE_TRANSFERS_TOKEN_BUCKET_H_

#include <cstddef>
#include <map>
#include <string>

#include "daemon/core/basics/time.h"

namespace geminid::core {

struct Rate {
  double per_second = 0;
  double burst = 0;  // at once, after a quiet time
};

class TokenBucket {
 public:
  TokenBucket(Rate rate, Time now) : rate_(rate), tokens_(rate.burst), filled_at_(now) {}

  // False, and nothing is taken, when there are fewer than `tokens`.
  bool Take(Time now, double tokens = 1);
  // Applies from now on; the tokens there stay, up to the new burst.
  void SetRate(Rate rate);
  // Whether it is as full as a new one.
  bool Full(Time now) const;

 private:
  void Fill(Time now);

  Rate rate_;
  double tokens_;
  Time filled_at_;
};

// One bucket per tenant. Full ones are deleted, so that tenants who stay away cost nothing.
class TenantRates {
 public:
  explicit TenantRates(Rate rate) : rate_(rate) {}

  bool Take(const std::string& tenant, Time now, double tokens = 1);
  void SetRate(Rate rate) { rate_ = rate; }
  size_t remembered() const { return buckets_.size(); }

 private:
  void Forget(Time now);

  Rate rate_;
  std::map<std::string, TokenBucket> buckets_;
  size_t forget_at_ = 64;  // buckets: at this many, full ones are deleted
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_TRANSFERS_TOKEN_BUCKET_H_
