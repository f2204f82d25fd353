-- A full Redis refuses the first command of a script that may need memory, but none after a first write, since that
-- would leave the script half done. Scripts that let jobs leave, hold them back or keep them locked begin with a write
-- that changes nothing: otherwise nothing would ever leave, and scripts that add jobs would use up any freed memory.
local function begin_unrefused(shape_key)
  redis.call('HDEL', shape_key, '')
end

return begin_unrefused
