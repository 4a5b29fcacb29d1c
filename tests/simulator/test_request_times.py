from frontier.simulator.request_times import Clocks, RequestTimes


def test_an_admission_a_rounding_before_the_arrival_takes_nothing_off_the_sum() -> None:
    times = RequestTimes()
    times.finished(Clocks(received=1.0, arrived=1.1 + 1e-12, admitted=1.1, first=1.2), 2.0, 8, 2)
    assert 0.0 == times.counters["request_queue_time_seconds_sum"]
    assert 1.0 == times.counters["e2e_request_latency_seconds_sum"]
