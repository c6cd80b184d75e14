// The page of a plan, as a browser gets it.
#include "daemon/service/watch/plan_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/service/entry/daemon.h"
#include "daemon/service/watch/monitor.h"
#include "tests/base/python_reads.h"
#include "tests/daemon/service/planned.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/daemon_env/raw_client.h"

namespace geminid::service {
namespace {

using ::geminid::testing::DaemonEnv;
using ::geminid::testing::RawClient;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr char kMarkup[] = "<img src=x onerror=alert(1)>\"'&";

size_t Count(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++count;
  return count;
}

core::SessionSpec SpecOf(const std::string& name) {
  core::SessionSpec spec;
  spec.tenant = name;
  spec.job = name;
  spec.rank = 1;
  spec.world_size = 4;
  return spec;
}

std::string PageOf(const StoredPlan::Contents& contents) {
  return PlanPage(7, SpecOf("gpt"), contents);
}

std::vector<std::string> RowsOf(const std::string& page, const std::string& id) {
  const size_t begin = page.find("<tbody>", page.find("aria-labelledby=\"" + id + "\""));
  const std::string body = page.substr(begin, page.find("</tbody>", begin) - begin);
  const std::regex row("<tr>(.*)</tr>");
  std::vector<std::string> rows;
  for (std::sregex_iterator match(body.begin(), body.end(), row), end; match != end; ++match) {
    rows.push_back((*match)[1]);
  }
  return rows;
}

TEST(SessionOfPath, NumbersAlone_AreSessions) {
  EXPECT_EQ(SessionOfPath("/plan/7"), 7u);
  EXPECT_EQ(SessionOfPath("/plan/18446744073709551615"), ~uint64_t{0});
  for (const char* path : {"/plan", "/plan/", "/plan/07", "/plan/7/", "/plan/-1", "/plan/ 7",
                           "/plan/7a", "/plan/18446744073709551616", "/plans/7", "/plan/../7"}) {
    EXPECT_EQ(SessionOfPath(path), std::nullopt) << path;
  }
}

TEST(PlanPage, AnyPlan_IsAPictureAndTheSameAsTables) {
  const std::string page = PageOf(PlannedChain(4, 3 * kMiB));
  EXPECT_THAT(page, HasSubstr("<h1>The plan of session 7</h1>"));
  EXPECT_THAT(page, HasSubstr("job gpt, rank 1 of 4, tenant gpt"));
  EXPECT_THAT(page, HasSubstr("<a href=\"/\">"));
  const size_t begin = page.find("<svg"), end = page.find("</svg>") + 6;
  EXPECT_TRUE(base::PythonReads(page.substr(begin, end - begin), "xml.parse(f)"));
  const std::vector<std::string> moments = RowsOf(page, "moments");
  EXPECT_EQ(moments.size(), 8u);
  // After the update all weights are stale, so the arena is filled at once and is full.
  EXPECT_THAT(moments[0], StartsWith("<td>0</td><td>3.0 MiB</td><td>0 B</td>"));
  EXPECT_THAT(moments[0], EndsWith("<td>1.0 MiB</td><td>2.0 MiB</td><td>0 B</td><td>0 B</td>"
                                   "<td>3.0 MiB</td><td>100.0 %</td>"));
  EXPECT_THAT(page, HasSubstr("of the arena</th>"));
  // Each row of the table is a rectangle of the picture, and each rectangle is a row.
  for (const std::string& row : RowsOf(page, "places")) {
    const std::regex cells(
        "<td>(\\d+)</td><td>(.*)</td><td>(.*)</td><td>(.*)</td><td class=\"text\">(.*)</td>");
    std::smatch match;
    ASSERT_TRUE(std::regex_match(row, match, cells)) << row;
    EXPECT_THAT(page, HasSubstr("<title>chunk " + match[1].str() + ", " + match[2].str() + " at " +
                                match[3].str() + ": " + match[5].str() + ", moment"));
  }
  EXPECT_EQ(RowsOf(page, "places").size(), Count(page, "<title>chunk "));
}

TEST(PlanPage, Sections_AreReachedByKeyboardAndHaveNames) {
  const std::string page = PageOf(PlannedChain(4, 3 * kMiB));
  EXPECT_EQ(Count(page, "tabindex=\"0\" role=\"region\" aria-labelledby=\""), 3u);
  for (const std::string id : {"picture", "moments", "places"}) {
    EXPECT_EQ(Count(page, "<h2 id=\"" + id + "\">"), 1u);
    EXPECT_EQ(Count(page, "aria-labelledby=\"" + id + "\""), 1u);
  }
  EXPECT_THAT(page, HasSubstr("role=\"img\""));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(page, HasSubstr("width=device-width"));
}

TEST(PlanPage, Page_LoadsAndRunsNothing) {
  const std::string page = PageOf(PlannedChain(4, 3 * kMiB));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page, Not(HasSubstr("script")));
  std::string rest = page;
  const std::string svg = "http://www.w3.org/2000/svg";  // a name, not an address
  rest.erase(rest.find(svg), svg.size());
  EXPECT_EQ(rest.find("://"), std::string::npos);
}

TEST(PlanPage, WhatAClientHasChosen_IsNoMarkup) {
  StoredPlan::Contents contents = PlannedChain(2, 2 * kMiB);
  contents.plan.set_explanation(kMarkup);
  contents.plan.add_stalls()->set_cause(kMarkup);
  const std::string page = PlanPage(7, SpecOf(kMarkup), contents);
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_GE(Count(page, "&lt;img src=x onerror=alert(1)&gt;&quot;&#39;&amp;"), 3u);
  EXPECT_THAT(NoPlanPage(7, kMarkup), Not(HasSubstr("<img")));
}

TEST(PlanPage, OfALargePlan_SaysWhatItLeavesOut) {
  const std::string page = PageOf(PlannedChain(1000, 20 * kMiB));
  EXPECT_LE(RowsOf(page, "moments").size(), kMostMomentRows);
  EXPECT_THAT(RowsOf(page, "moments").back(), HasSubstr("to 1999</td>"));
  EXPECT_EQ(RowsOf(page, "places").size(), kMostPlaceRows);
  EXPECT_THAT(page, HasSubstr("The largest 256 of "));
  EXPECT_LT(page.size(), 2 * kMiB);
}

// --- from the daemon -----------------------------------------------------------------------------

struct Served {
  DaemonEnv env;
  std::unique_ptr<RawClient> client;
  SessionPtr session;

  void Start() {
    ASSERT_TRUE(env.Start().ok());
    absl::StatusOr<std::unique_ptr<RawClient>> attached = RawClient::Attach(env.socket());
    ASSERT_TRUE(attached.ok()) << attached.status();
    client = *std::move(attached);
    session = env.daemon().hub().AllSessions().front();
  }
  std::string path() const { return kPlanPages + std::to_string(shm::Value(session->id())); }
};

TEST(PlanPage, OfASession_IsThereOnceItHasAPlan) {
  Served served;
  ASSERT_NO_FATAL_FAILURE(served.Start());
  SessionHub& hub = served.env.daemon().hub();
  Monitor monitor(&hub, &served.env.daemon().vitals(), "1");
  metrics::HttpResponse response = monitor.Handle(served.path());
  EXPECT_EQ(response.code, 404);
  EXPECT_THAT(response.body, HasSubstr("It has no plan to show: none was made for it yet"));
  const StoredPlan::Contents contents = PlannedChain(4, 3 * kMiB);
  ASSERT_TRUE(
      hub.SetPlan(served.session, {.moments = 8, .chunks = {}}, contents.trace, contents.plan)
          .ok());
  response = monitor.Handle(served.path());
  EXPECT_EQ(response.code, 200);
  EXPECT_EQ(response.content_type, "text/html; charset=utf-8");
  EXPECT_EQ(response.body,
            PlanPage(shm::Value(served.session->id()), served.session->spec(), contents));
  response = monitor.Handle("/plan/999");
  EXPECT_EQ(response.code, 404);
  EXPECT_THAT(response.body, HasSubstr("There is no such session"));
  EXPECT_EQ(monitor.Handle("/plan/x").code, 404);
}

TEST(PlanPage, AskedForAgainAndAgain_IsRefusedForAWhile) {
  Served served;
  ASSERT_NO_FATAL_FAILURE(served.Start());
  Monitor monitor(&served.env.daemon().hub(), &served.env.daemon().vitals(), "1");
  int code = 0;
  for (int i = 0; i < 1000 && code != 429; ++i) code = monitor.Handle(served.path()).code;
  EXPECT_EQ(code, 429);
  EXPECT_EQ(monitor.Handle("/livez").code, 200);
}

TEST(PlanPage, IsLinkedFromTheRanksOfTheLivePage) {
  DaemonEnv env;
  ASSERT_TRUE(env.Start().ok());
  Monitor monitor(&env.daemon().hub(), &env.daemon().vitals(), "1");
  EXPECT_THAT(monitor.Handle("/").body,
              HasSubstr("{href: \"/plan/\" + encodeURIComponent(one.session)}"));
}

}  // namespace
}  // namespace geminid::service
