// Compares our own declarations of NCCL with its header and with the library, on machines that have
// them. The library needs no GPU to give its version and ids.
#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): unsetenv

#include <cstring>
#include <string>

#include "gpu/nccl_api.h"
#include "tests/gpu/same_declarations.h"

#if __has_include(<nccl.h>)
#include <nccl.h>

#include <cstddef>
#include <type_traits>

namespace geminid::gpu {
namespace {

SAME_VALUE(ncclSuccess, NcclResult::kSuccess);
SAME_VALUE(ncclUnhandledCudaError, NcclResult::kUnhandledCudaError);
SAME_VALUE(ncclSystemError, NcclResult::kSystemError);
SAME_VALUE(ncclInternalError, NcclResult::kInternalError);
SAME_VALUE(ncclInvalidArgument, NcclResult::kInvalidArgument);
SAME_VALUE(ncclInvalidUsage, NcclResult::kInvalidUsage);
SAME_VALUE(ncclRemoteError, NcclResult::kRemoteError);
SAME_VALUE(ncclInProgress, NcclResult::kInProgress);
SAME_VALUE(ncclUint8, NcclType::kUint8);
static_assert(sizeof(ncclUniqueId) == sizeof(NcclId));
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t));
static_assert(offsetof(ncclConfig_t, magic) == offsetof(NcclConfig, magic));
static_assert(offsetof(ncclConfig_t, version) == offsetof(NcclConfig, version));
static_assert(offsetof(ncclConfig_t, blocking) == offsetof(NcclConfig, blocking));

#define SAME_CALL(member, function)                                                        \
  static_assert(                                                                           \
      kSameCall<ncclResult_t, NcclResult, decltype(&function), decltype(NcclApi::member)>, \
      #member)
SAME_CALL(get_version, ncclGetVersion);
SAME_CALL(get_unique_id, ncclGetUniqueId);
SAME_CALL(comm_init, ncclCommInitRankConfig);
SAME_CALL(comm_finalize, ncclCommFinalize);
SAME_CALL(comm_destroy, ncclCommDestroy);
SAME_CALL(comm_abort, ncclCommAbort);
SAME_CALL(comm_async_error, ncclCommGetAsyncError);
SAME_CALL(all_gather, ncclAllGather);
SAME_CALL(broadcast, ncclBroadcast);
SAME_CALL(send, ncclSend);
SAME_CALL(receive, ncclRecv);
SAME_CALL(group_start, ncclGroupStart);
SAME_CALL(group_end, ncclGroupEnd);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
SAME_CALL(comm_register, ncclCommRegister);
SAME_CALL(comm_deregister, ncclCommDeregister);
#endif

TEST(NcclConfigType, HasTheMagicOfTheHeader) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(NcclConfig().magic, theirs.magic);
}

}  // namespace
}  // namespace geminid::gpu
#endif

namespace geminid::gpu {
namespace {

TEST(MachinesNccl, GivesItsVersionAndDifferentIds) {
  unsetenv(kNcclPathVariable);
  NcclApi api;
  std::string error;
  if (!LoadNcclApi(&api, &error)) GTEST_SKIP() << error;
  int version = 0;
  EXPECT_EQ(api.get_version(&version), NcclResult::kSuccess);
  EXPECT_EQ(version / 10000, 2) << version;
  NcclId first = {};
  NcclId second = {};
  EXPECT_EQ(api.get_unique_id(&first), NcclResult::kSuccess);
  EXPECT_EQ(api.get_unique_id(&second), NcclResult::kSuccess);
  EXPECT_NE(std::memcmp(&first, &second, sizeof(first)), 0);
  EXPECT_EQ(std::string(api.error_string(NcclResult::kInProgress)), "NCCL operation in progress");
  constexpr int kRegistersSince = 21900;
  EXPECT_EQ(api.comm_register != nullptr, version >= kRegistersSince);
}

}  // namespace
}  // namespace geminid::gpu
