/** The tested versions of BullMQ, with the digest of the scripts that Sluice composes. */
export const TESTED_BULLMQ: Readonly<Record<string, string>> = {
  '6.5.1': '43fe267a54b2b4f71557d1ba3000b9490c328059',
  '6.5.4': '43fe267a54b2b4f71557d1ba3000b9490c328059',
  '6.7.0': 'c0914a05848d37b6b3a831aca09b0ecb140b674a',
}
