#include "daemon/config/mode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/config/config_file.h"

namespace geminid::config {
namespace {

using ::testing::HasSubstr;

TEST(ParseMode, OctalWithAZero_IsRead) {
  EXPECT_EQ(*ParseMode("0660"), 0660u);
  EXPECT_EQ(*ParseMode("0666"), 0666u);
  EXPECT_EQ(*ParseMode("0777"), 0777u);
  EXPECT_EQ(*ParseMode("0"), 0u);
}

TEST(ParseMode, WhatCouldBeReadInTwoWays_IsRefusedWithWhatWasMeant) {
  EXPECT_THAT(std::string(ParseMode("660").status().message()), HasSubstr("did you mean 0660?"));
  for (const char* text :
       {"432", "438", "1777", "01777", "0888", "", "rw-rw----", "-0660", "0x1b0"}) {
    EXPECT_FALSE(ParseMode(text).ok()) << text;
  }
}

TEST(ConfigFile, Mode_MayBeWrittenWithAndWithoutQuotes) {
  for (const char* text :
       {"socket_mode: 0660", "socket_mode: \"0660\"", "socket_mode:0660", "socket_mode : 0660\n",
        "# socket_mode, as people write it\nconfig_version: 1\n  socket_mode: 0660 # group"}) {
    const auto file = ParseConfigFile("g.textproto", text);
    ASSERT_TRUE(file.ok()) << text << file.status();
    EXPECT_EQ(file->config.socket_mode(), "0660") << text;
  }
  const auto json = ParseConfigFile("g.json", "{\"socket_mode\": \"0660\"}");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(json->config.socket_mode(), "0660");
  EXPECT_THAT(std::string(ParseConfigFile("g.json", "{\"socket_mode\": 432}").status().message()),
              HasSubstr("expected a string in double quotes"));
}

}  // namespace
}  // namespace geminid::config
