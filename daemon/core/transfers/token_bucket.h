// How often each tenant may do something.
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
  // From now on; what is there stays, up to the new burst.
  void SetRate(Rate rate);
  // As a new one: nothing was taken for a while.
  bool Full(Time now) const;

 private:
  void Fill(Time now);

  Rate rate_;
  double tokens_;
  Time filled_at_;
};

// One bucket per tenant. Full ones are forgotten, so that tenants who come no more cost nothing.
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
  size_t forget_at_ = 64;  // tenants: then it pays to look
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_TRANSFERS_TOKEN_BUCKET_H_
