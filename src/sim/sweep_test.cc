#include "sim/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rondo::sim {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Workload small() {
  return *load_workload(
      "", std::vector<std::string>{"model.preset=smollm2-135m", "lengths.groups=6", "lengths.group_size=4",
                                   "lengths.mean=300", "lengths.max=2048", "cluster.instances=2",
                                   "engine.kv_tokens=8192", "compare.variants=a <b>: seer,fifo"});
}

std::string error_of(const std::vector<std::string>& axes) {
  const auto points = sweep(small(), axes, {});
  return points ? "no error" : points.error().message();
}

TEST(Sweep, RunsEveryCombinationAsIfItWereRunAlone) {
  const std::vector<std::string> axes = {"schedule.chunk_tokens=64,512", "lengths.correlation=0,0.5,0.9"};
  const auto points = sweep(small(), axes, {.num_seeds = 2, .num_threads = 4});
  ASSERT_TRUE(points) << points.error().message();
  ASSERT_EQ(points->size(), 6U);
  EXPECT_EQ((*points)[5].setting, "schedule.chunk_tokens=512 lengths.correlation=0.9");
  const std::vector<std::string> last = {"schedule.chunk_tokens=512", "lengths.correlation=0.9"};
  const auto alone = compare(*variants_of(*with_overrides(small(), last)), {.num_seeds = 2});
  ASSERT_TRUE(alone);
  for (std::size_t v = 0; v < 2; ++v) {
    EXPECT_EQ((*points)[5].variants[v].outcomes[1].event_hash, (*alone)[v].outcomes[1].event_hash);
  }
}

TEST(Sweep, TableBarsAndPageShowEveryPoint) {
  const std::vector<std::string> axes = {"schedule.chunk_tokens=64,512"};
  const auto points = sweep(small(), axes, {.num_seeds = 2});
  ASSERT_TRUE(points);
  EXPECT_THAT(sweep_table(*points), AllOf(HasSubstr("chunk_tokens=64"), HasSubstr("chunk_tokens=512")));
  EXPECT_THAT(sweep_bars(*points), AllOf(HasSubstr("fifo, tokens/s"), HasSubstr("####")));
  EXPECT_THAT(sweep_page("a & b", *points), AllOf(HasSubstr("a &amp; b"), HasSubstr("a &lt;b&gt;"),
                                                  HasSubstr("<polyline"), HasSubstr("</html>")));
}

TEST(Sweep, RefusesWhatIsNoAxis) {
  EXPECT_THAT(error_of({"schedule.chunk_tokens"}), HasSubstr("key=value"));
  EXPECT_THAT(error_of({"schedule.chunk_token=64"}), HasSubstr("schedule.chunk_tokens"));
  EXPECT_THAT(error_of({"cluster.instances=1,0"}), HasSubstr(">= 1"));
  EXPECT_THAT(error_of({"cluster.instances=1,2,1"}), HasSubstr("twice"));
  EXPECT_THAT(error_of({"cluster.instances=1,2", "cluster.instances=3"}), HasSubstr("twice"));
}

}  // namespace
}  // namespace rondo::sim
