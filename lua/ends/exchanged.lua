--- @call
-- What this call of lua/verbs/exchange.lua ends, and what it has done so far.
--   argv, base   of the call; keys, args: those of BullMQ's script
--   count, wanted   how many jobs end, and how many are wanted in their places
--   results   as they are returned
--   last      the last reply of a fetch; dry: once no job was found, or enough were (ends/fetched), none is looked for
--   found     how many jobs were fetched when an end was first sent
--   repeated, remembered   whether an end was sent before, and whether the grant of this call is remembered for that reason
--   unseen    the jobs that ended without looking for another
--   unasked   how many ends were to look for a job and did not, since BullMQ's script refused them
return {
  argv = false, base = '', keys = false, args = { '', '', '', '', '', '', '', '', '' }, count = 0, wanted = 0,
  results = {}, last = false, dry = false, found = 0, repeated = false, remembered = false, unseen = {}, unasked = 0,
  quiet = false,
}
