#include "tools/geminictl/json_message.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "geminid/v1/admin.pb.h"
#include "geminid/v1/config.pb.h"

namespace geminid::ctl {
namespace {

using base::JsonValue;

// The value at `key`; a null value that says so if it is not there.
const JsonValue& At(const JsonValue& object, const std::string& key) {
  static const JsonValue kMissing;
  for (const JsonValue::Member& member : object.members) {
    if (member.key == key) return member.value;
  }
  ADD_FAILURE() << "no key " << key;
  return kMissing;
}

JsonValue Parse(const std::string& text) {
  JsonValue value;
  base::JsonError error;
  EXPECT_TRUE(base::ParseJson(text, &value, &error)) << error.problem << " in " << text;
  return value;
}

TEST(JsonDocument, Values_AreRawAndNamedAsInTheProto) {
  v1::SessionInfo session;
  session.set_session(18446744073709551615u);
  session.set_rank(-1);
  session.set_job("say \"hi\"");
  (*session.mutable_stall_seconds())["copy"] = 0.5;
  (*session.mutable_transfer_bytes())["b"] = 2;
  (*session.mutable_transfer_bytes())["a"] = 1;
  const JsonValue value = Parse(JsonDocument({&session}));
  EXPECT_EQ(At(value, "schema_version").text, "1");
  EXPECT_EQ(At(value, "session").type, JsonValue::Type::kNumber);
  EXPECT_EQ(At(value, "session").text, "18446744073709551615");
  EXPECT_EQ(At(value, "rank").text, "-1");
  EXPECT_EQ(At(value, "job").text, "say \"hi\"");
  EXPECT_EQ(At(value, "host_bytes").text, "0");  // a default
  EXPECT_EQ(At(At(value, "stall_seconds"), "copy").text, "0.5");
  const JsonValue& bytes = At(value, "transfer_bytes");
  ASSERT_EQ(bytes.members.size(), 2u);
  EXPECT_EQ(bytes.members[0].key, "a");  // sorted
}

TEST(JsonDocument, Enumerations_AreWords) {
  v1::ListChunksResponse response;
  response.add_chunks()->set_kind(v1::CHUNK_KIND_EXP_AVG_SQ);
  const JsonValue chunks = Parse(JsonDocument({&response}));
  EXPECT_EQ(At(At(chunks, "chunks").items.at(0), "kind").text, "exp_avg_sq");
  v1::PoolInfo pool;
  pool.set_tier(v1::TIER_DEVICE);
  EXPECT_EQ(At(Parse(JsonDocument({&pool})), "tier").text, "device");
}

TEST(JsonDocument, UnsetMessage_IsNull) {
  const v1::ExplainChunkResponse response;
  const JsonValue value = Parse(JsonDocument({&response}));
  EXPECT_EQ(At(value, "chunk").type, JsonValue::Type::kNull);
  EXPECT_EQ(At(value, "lines").type, JsonValue::Type::kArray);
}

TEST(JsonDocument, UnsetOptionalNumber_IsNull) {
  v1::TierLedger host;
  EXPECT_EQ(At(Parse(JsonDocument({&host})), "device").type, JsonValue::Type::kNull);
  host.set_device(0);
  EXPECT_EQ(At(Parse(JsonDocument({&host})), "device").text, "0");
}

TEST(JsonDocument, SeveralMessages_StandSideBySide) {
  v1::Ledger ledger;
  ledger.set_adds_up(true);
  const v1::ListSessionsResponse sessions;
  const JsonValue value = Parse(JsonDocument({&ledger, &sessions}));
  EXPECT_TRUE(At(value, "adds_up").boolean);
  EXPECT_TRUE(At(value, "sessions").items.empty());
}

}  // namespace
}  // namespace geminid::ctl
