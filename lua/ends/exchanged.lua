--- @call
-- The jobs that this call of lua/verbs/exchange.lua ends, and its progress.
--   argv, base   of the call; keys, args: those of BullMQ's script
--   count, wanted   how many jobs end, and how many are wanted in their places
--   results   as they are returned
--   last      the last reply of a fetch; dry: set once no job was found, or enough were (ends/fetched)
--   found     how many jobs were fetched when an end was first sent
--   repeated, remembered   whether an end was resent, and whether the grant of this call is remembered for that reason
--   unseen    jobs that ended without looking for another
--   unasked   how many ends did not look for a job as intended, because BullMQ's script refused them
return {
  argv = false, base = '', keys = false, args = { '', '', '', '', '', '', '', '', '' }, count = 0, wanted = 0,
  results = {}, last = false, dry = false, found = 0, repeated = false, remembered = false, unseen = {}, unasked = 0,
  quiet = false,
}
