import type { WarmUp } from '../limits/warm-up.ts'

/** Emails an hour, from the first day on. */
const SENDGRID = [
  ...[20, 28, 39, 55, 77, 108, 151, 211, 295, 413, 579, 810, 1000, 1587, 2222, 3111, 4356, 6098, 8583, 11_953],
  ...[16_734, 23_427, 32_798, 45_917, 64_284, 89_998, 125_997, 176_395, 246_953, 345_735, 484_029, 677_640, 948_696],
  ...[1_328_175, 1_859_444, 2_603_222, 3_644_511, 5_102_316, 7_143_242, 10_000_539, 14_000_754, 19_601_056],
]

/** Plans that providers have published, for `warmUp` of a limit. */
export const warmUpPlans = {
  /**
   * Twilio SendGrid's automated warm-up of a dedicated IP: 24 times its hourly limit of each day, 41 days and the first one;
   * then no limit. Source: "Warming Up an IP Address", docs.sendgrid.com/ui/sending-email/warming-up-an-ip-address, and its
   * table at sendgrid.kke.co.jp/docs/API_Reference/Web_API_v3/IP_Management/ip_warmup_schedule.html.
   */
  sendgrid: {
    plan: [
      ...SENDGRID.map((hourly, i) => ({ day: i + 1, quota: 24 * hourly })),
      { day: SENDGRID.length + 1, quota: null },
    ],
  },
} as const satisfies Readonly<Record<string, WarmUp>>
