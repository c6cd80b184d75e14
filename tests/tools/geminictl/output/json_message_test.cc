#include "tools/geminictl/output/json_message.h"

#include <gtest/gtest.h>

#include "geminid/v1/admin.pb.h"
#include "geminid/v1/config.pb.h"
#include "tests/base/json_values.h"

namespace geminid::ctl {
namespace {

using base::At;
using base::JsonValue;
using base::MustParse;

// At() returns the value of `key`, or a null value with a message if there is none.
TEST(JsonDocument, Values_AreRawAndNamedAsInTheProto) {
  v1::SessionInfo session;
  session.set_session(18446744073709551615u);
  session.set_rank(-1);
  session.set_job("say \"hi\"");
  (*session.mutable_stall_seconds())["copy"] = 0.5;
  (*session.mutable_transfer_bytes())["b"] = 2;
  (*session.mutable_transfer_bytes())["a"] = 1;
  const JsonValue value = MustParse(JsonDocument({&session}));
  EXPECT_EQ(At(value, "schema_version").text, "1");
  EXPECT_EQ(At(value, "session").type, JsonValue::Type::kNumber);
  EXPECT_EQ(At(value, "session").text, "18446744073709551615");
  EXPECT_EQ(At(value, "rank").text, "-1");
  EXPECT_EQ(At(value, "job").text, "say \"hi\"");
  EXPECT_EQ(At(value, "host_bytes").text, "0");  // a default value
  EXPECT_EQ(At(At(value, "stall_seconds"), "copy").text, "0.5");
  const JsonValue& bytes = At(value, "transfer_bytes");
  ASSERT_EQ(bytes.members.size(), 2u);
  EXPECT_EQ(bytes.members[0].key, "a");  // sorted
}

TEST(JsonDocument, Enumerations_AreWords) {
  v1::ListChunksResponse response;
  response.add_chunks()->set_kind(v1::CHUNK_KIND_EXP_AVG_SQ);
  const JsonValue chunks = MustParse(JsonDocument({&response}));
  EXPECT_EQ(At(At(chunks, "chunks").items.at(0), "kind").text, "exp_avg_sq");
  v1::PoolInfo pool;
  pool.set_tier(v1::TIER_DEVICE);
  EXPECT_EQ(At(MustParse(JsonDocument({&pool})), "tier").text, "device");
}

TEST(JsonDocument, UnsetMessage_IsNull) {
  const v1::ExplainChunkResponse response;
  const JsonValue value = MustParse(JsonDocument({&response}));
  EXPECT_EQ(At(value, "chunk").type, JsonValue::Type::kNull);
  EXPECT_EQ(At(value, "lines").type, JsonValue::Type::kArray);
}

TEST(JsonDocument, UnsetOptionalNumber_IsNull) {
  v1::TierLedger host;
  EXPECT_EQ(At(MustParse(JsonDocument({&host})), "device").type, JsonValue::Type::kNull);
  host.set_device(0);
  EXPECT_EQ(At(MustParse(JsonDocument({&host})), "device").text, "0");
}

TEST(JsonDocument, SeveralMessages_StandSideBySide) {
  v1::Ledger ledger;
  ledger.set_adds_up(true);
  const v1::ListSessionsResponse sessions;
  const JsonValue value = MustParse(JsonDocument({&ledger, &sessions}));
  EXPECT_TRUE(At(value, "adds_up").boolean);
  EXPECT_TRUE(At(value, "sessions").items.empty());
}

}  // namespace
}  // namespace geminid::ctl
