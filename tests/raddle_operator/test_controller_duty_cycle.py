"""Work that costs more and more takes a bounded share of the time."""

from types import SimpleNamespace

from raddle_operator.controller.duty_cycle import DutyCycle


def test_the_pause_follows_from_what_the_work_took():
    clock = SimpleNamespace(now_s=0.0)
    duty = DutyCycle(0.1, now_s=lambda: clock.now_s)
    assert duty.wait_s() == 0
    for took_s, pause_s in ((0.0, 0.0), (1.0, 9.0), (0.1, 0.9)):
        with duty.work():
            clock.now_s += took_s
        assert round(duty.wait_s(), 6) == pause_s
        clock.now_s += pause_s / 2
        assert round(duty.wait_s(), 6) == pause_s / 2
        clock.now_s += pause_s
        assert duty.wait_s() == 0
