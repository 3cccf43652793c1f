"""The tables of noise reports: the numbers of a week, and of each rule that made noise in it."""

from django.db import models


class NoiseReport(models.Model):
    """What an organisation's alerts did in [from_ms, to_ms). ``is_cut``: only the newest notifications are counted."""

    organisation = models.ForeignKey("accounts.Organisation", models.CASCADE, related_name="+")
    from_ms = models.BigIntegerField()
    to_ms = models.BigIntegerField()
    made_ms = models.BigIntegerField()
    rules = models.IntegerField(help_text="with an alert")
    alerts = models.IntegerField(help_text="that began")
    notifications = models.IntegerField(help_text="delivered, with at least one alert")
    unattended = models.IntegerField(help_text="alerts that somebody heard of and nobody acted on")
    flaps = models.IntegerField(help_text="alerts that began soon after the last one of their series had ended")
    is_cut = models.BooleanField(default=False)

    class Meta:
        ordering = ["-to_ms"]
        constraints = [models.UniqueConstraint(fields=["organisation", "to_ms"], name="one_noise_report")]

    def __str__(self) -> str:
        return f"{self.organisation} until {self.to_ms}"


class NoisyRule(models.Model):
    """The numbers of one rule in a report, and what a backtest says of longer ``for``.

    ``tried_notifications`` is what the backtest counts with the rule's own ``for``, to one receiver; null if it was not
    tried, and ``untried`` says why. ``effects``: ``for_ms``, ``episodes`` and ``notifications`` with longer ones.
    """

    report = models.ForeignKey(NoiseReport, models.CASCADE, related_name="noisy_rules")
    rule = models.ForeignKey("alerts.Rule", models.CASCADE, related_name="+")
    alerts = models.IntegerField(default=0)
    notifications = models.IntegerField(default=0)
    unattended = models.IntegerField(default=0)
    flaps = models.IntegerField(default=0)
    for_ms = models.BigIntegerField(default=0)
    tried_notifications = models.IntegerField(null=True)
    effects = models.JSONField(default=list)
    untried = models.CharField(max_length=500, blank=True)

    class Meta:
        ordering = ["-notifications", "-alerts", "id"]

    def __str__(self) -> str:
        return f"{self.rule} in {self.report}"

    @property
    def saving(self) -> dict[str, int] | None:
        """The shortest longer ``for`` with at most half of the notifications, else that with the fewest; None if none
        has fewer.
        """
        tried = self.tried_notifications or 0
        fewer: list[dict[str, int]] = [each for each in self.effects if each["notifications"] < tried]
        half = [each for each in fewer if each["notifications"] <= tried // 2]
        return half[0] if half else min(fewer, key=lambda each: each["notifications"], default=None)

    @property
    def saved(self) -> int:
        """How many notifications fewer each receiver had got with it."""
        return (self.tried_notifications or 0) - self.saving["notifications"] if self.saving else 0
