#include "daemon/config/tenant_shares.h"

#include "geminid/v1/config.pb.h"

namespace geminid::config {

TenantShares SharesOf(const v1::Config& config) {
  TenantShares shares;
  for (const ShareKey& key : kShareKeys) {
    shares.*key.value = config.GetReflection()->GetUInt32(
        config, v1::Config::descriptor()->FindFieldByName(key.key));
  }
  return shares;
}

void SetShares(const TenantShares& shares, v1::Config* config) {
  for (const ShareKey& key : kShareKeys) {
    config->GetReflection()->SetUInt32(config, v1::Config::descriptor()->FindFieldByName(key.key),
                                       shares.*key.value);
  }
}

}  // namespace geminid::config
