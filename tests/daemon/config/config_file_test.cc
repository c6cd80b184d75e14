#include "daemon/config/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "tests/base/temporary_folder.h"

namespace geminid::config {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ErrorOf(const std::string& path, const std::string& text) {
  return std::string(ParseConfigFile(path, text).status().message());
}

TEST(ConfigFile, TextProto_UnknownKey_SaysWhereAndWhatWasMeant) {
  const std::string error = ErrorOf("g.textproto", "config_version: 1\n  sokcet: \"/x\"\n");
  EXPECT_THAT(error, StartsWith("g.textproto:2:9: sokcet: unknown key"));
  EXPECT_THAT(error, HasSubstr("did you mean 'socket'?"));
}

TEST(ConfigFile, TextProto_UnknownKeyInAQuota_NamesTheKeysOfAQuota) {
  const std::string error = ErrorOf("g.textproto", "quotas { tennant: \"*\" }");
  EXPECT_THAT(error, HasSubstr("did you mean 'tenant'?"));
  EXPECT_THAT(error, HasSubstr("known here: tenant, host_memory, device_memory"));
}

TEST(ConfigFile, MarkOfTheByteOrder_IsSkipped) {
  EXPECT_EQ(ErrorOf("g.textproto",
                    "\xEF\xBB\xBF"
                    "config_version: 1"),
            "");
  EXPECT_EQ(ErrorOf("g.json",
                    "\xEF\xBB\xBF"
                    "{\"config_version\": 1}"),
            "");
}

TEST(ConfigFile, TextProto_WrongType_SaysWhere) {
  EXPECT_THAT(ErrorOf("g.textproto", "\n\nhuge_pages: \"true\"\n"),
              StartsWith("g.textproto:3:13: "));
}

TEST(ConfigFile, TextProto_Good_HasValuesAndPositions) {
  absl::StatusOr<ConfigFile> file =
      ParseConfigFile("g.textproto",
                      "config_version: 1\nsocket: \"/run/x\"\nquotas { tenant: \"*\" }\n"
                      "quotas {\n  tenant: \"uid:7\"\n  host_memory: \"1GiB\"\n}\n");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->config.socket(), "/run/x");
  EXPECT_EQ(file->positions["socket"].line, 2);
  EXPECT_EQ(file->positions["socket"].column, 1);
  EXPECT_EQ(file->positions["quotas[1].host_memory"].line, 6);
  EXPECT_EQ(file->positions["quotas[1].host_memory"].column, 3);
  EXPECT_EQ(file->positions.count("log_level"), 0u);
}

TEST(ConfigFile, Json_UnknownKeys_AreAllReported) {
  const std::string error =
      ErrorOf("g.json", "{\n  \"sokcet\": \"/x\",\n  \"quotas\": [{\"tennant\": \"*\"}]\n}");
  EXPECT_THAT(error, HasSubstr("g.json:2:3: sokcet: unknown key"));
  EXPECT_THAT(error, HasSubstr("g.json:3:15: tennant: unknown key"));
}

TEST(ConfigFile, Json_WrongTypes_SayWhatIsExpected) {
  EXPECT_EQ(ErrorOf("g.json", "{\"socket\": 1}"),
            "g.json:1:12: socket: expected a string in double quotes");
  EXPECT_EQ(ErrorOf("g.json", "{\"tickets_in_flight\": -1}"),
            "g.json:1:23: tickets_in_flight: expected a whole number from 0 to 4294967295");
  EXPECT_EQ(ErrorOf("g.json", "{\"huge_pages\": \"true\"}"),
            "g.json:1:16: huge_pages: expected true or false");
  EXPECT_EQ(ErrorOf("g.json", "{\"quotas\": {}}"),
            "g.json:1:12: quotas: expected an array in brackets");
  EXPECT_EQ(ErrorOf("g.json", "{\"socket\": null}"),
            "g.json:1:12: socket: expected a string in double quotes");
  EXPECT_EQ(ErrorOf("g.json", "[]"), "g.json:1:1: expected an object in braces");
}

TEST(ConfigFile, Json_BothSpellingsOfAKey_AreOne) {
  EXPECT_EQ(ErrorOf("g.json", "{\"hostMemory\": \"1GiB\", \"host_memory\": \"2GiB\"}"),
            "g.json:1:24: host_memory: given twice");
  absl::StatusOr<ConfigFile> file = ParseConfigFile("g.json", "{\"hostMemory\": \"1GiB\"}");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->config.host_memory(), "1GiB");
}

TEST(ConfigFile, Json_EqualsTextProto) {
  absl::StatusOr<ConfigFile> json = ParseConfigFile(
      "g.json",
      "{\"config_version\": 1, \"huge_pages\": false, \"quotas\": [{\"tenant\": \"uid:7\"}]}");
  absl::StatusOr<ConfigFile> text = ParseConfigFile(
      "g.textproto", "config_version: 1 huge_pages: false quotas { tenant: \"uid:7\" }");
  ASSERT_TRUE(json.ok() && text.ok());
  EXPECT_EQ(json->config.SerializeAsString(), text->config.SerializeAsString());
  EXPECT_EQ(json->positions.count("huge_pages"), 1u);
  EXPECT_EQ(text->positions.count("huge_pages"), 1u);
}

TEST(ConfigFile, MutatedFiles_NeverCrash) {
  const std::string seeds[] = {
      "{\"config_version\": 1, \"quotas\": [{\"tenant\": \"uid:7\"}], \"huge_pages\": true}",
      "config_version: 1 quotas { tenant: \"uid:7\" } huge_pages: false"};
  const std::string paths[] = {"g.json", "g.textproto"};
  std::mt19937 random(1);
  int good = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = seeds[i % 2];
    for (int k = static_cast<int>(random() % 4); k >= 0; --k) {
      const size_t at = random() % text.size();
      if (random() % 2 == 0) {
        text[at] = static_cast<char>(random());
      } else {
        text.insert(at, text.substr(random() % text.size(), random() % 8));
      }
    }
    good += ParseConfigFile(paths[i % 2], text).ok() ? 1 : 0;
  }
  EXPECT_GT(good, 0);
  EXPECT_LT(good, 20000);
}

TEST(ConfigFile, OtherExtension_IsRefused) {
  EXPECT_THAT(ErrorOf("g.yaml", ""), HasSubstr("ends in .textproto or .json"));
}

TEST(ConfigFile, Read_MissingOrTooLarge_IsRefused) {
  base::TemporaryFolder folder;
  EXPECT_FALSE(ReadConfigFile(folder.path() + "/none.json").ok());
  const std::string large = folder.path() + "/large.json";
  std::ofstream(large) << std::string(kMaxConfigFileBytes + 1, ' ');
  EXPECT_THAT(std::string(ReadConfigFile(large).status().message()), HasSubstr("larger than"));
}

}  // namespace
}  // namespace geminid::config
