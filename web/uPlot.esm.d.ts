/** What the server serves as `assets/uPlot.esm.js`: the library's own file. */
import uPlot from 'uplot'

export default uPlot
