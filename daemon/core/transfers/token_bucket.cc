#include "daemon/core/transfers/token_bucket.h"

#include <algorithm>

namespace geminid::core {

void TokenBucket::Fill(Time now) {
  if (now <= filled_at_) return;
  tokens_ = std::min(rate_.burst, tokens_ + (now - filled_at_).seconds() * rate_.per_second);
  filled_at_ = now;
}

bool TokenBucket::Take(Time now, double tokens) {
  Fill(now);
  if (tokens_ < tokens) return false;
  tokens_ -= tokens;
  return true;
}

void TokenBucket::SetRate(Rate rate) {
  rate_ = rate;
  tokens_ = std::min(tokens_, rate.burst);
}

bool TokenBucket::Full(Time now) const {
  TokenBucket later = *this;
  later.Fill(now);
  return later.tokens_ >= rate_.burst;
}

bool TenantRates::Take(const std::string& tenant, Time now, double tokens) {
  if (buckets_.size() >= forget_at_) Forget(now);
  TokenBucket& bucket = buckets_.try_emplace(tenant, rate_, now).first->second;
  bucket.SetRate(rate_);
  return bucket.Take(now, tokens);
}

void TenantRates::Forget(Time now) {
  std::erase_if(buckets_, [now](const auto& entry) { return entry.second.Full(now); });
  // Amortized: at least as many new buckets come before the next scan of all.
  forget_at_ = std::max<size_t>(64, 2 * buckets_.size());
}

}  // namespace geminid::core
